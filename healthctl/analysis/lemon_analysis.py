"""`healthctl analyze lemons`: finds nodes that fail repeatedly, from a record of node events. Works offline."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from healthctl.analysis.answers import SuspectNode
from healthctl.cli.screen import Screen, output_options
from healthctl.exit_codes import Exit, Failure
from healthctl.rendering.blocks import Block, Column, Line, Rows, format_timestamp

if TYPE_CHECKING:
    from healthctl.analysis.fleet_record import FleetRecord
    from remediator.detection.lemons import Judged

SUSPECT = 0.5
SHOWN = 20
PLOTTED = 25


class LemonAnalysis(msgspec.Struct, frozen=True):
    """JSON output: nodes, most suspect first; the fleet they are compared with; the kinds that were not recognized."""

    as_of: float
    nodes: tuple[SuspectNode, ...]
    fleet: dict[str, float]
    unknown_kinds: dict[str, int]
    skipped_rows: int


@click.command(epilog="Example: healthctl analyze lemons events.csv --as-of 2026-10-01 --nodes 1024")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--as-of", "as_of", help="Analyze as of this time (epoch seconds or ISO 8601). Default: time of the last row."
)
@click.option("--nodes", "fleet_nodes", type=click.IntRange(1, 10_000_000),
              help="Fleet size, if FILE omits nodes without events. Default: estimated.")  # fmt: skip
@click.option("--factor", type=click.FloatRange(3, 200), default=3.0, show_default=True,
              help="Failure rate of a lemon, as a multiple of the fleet's rate.")  # fmt: skip
@click.option("--gpus-per-node", type=click.FloatRange(1, 1024), default=8.0, show_default=True,
              help="GPUs per node, if FILE omits it.")  # fmt: skip
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Also write a chart to FILE.svg or FILE.html."
)
@output_options
def lemons(
    screen: Screen, file: Path, as_of: str | None, fleet_nodes: int | None, factor: float, gpus_per_node: float,
    plot: Path | None,
) -> None:  # fmt: skip
    """Find nodes that fail more often than chance explains.

    Reads node events from FILE (CSV, JSON lines or Parquet). Columns: node, time, kind; optional: start, end, duration,
    job, user, nodes, code, rack, batch, driver, gpus. For the kinds see docs/explanation/lemons.md. Events after --as-of
    are ignored. Exits with 1 if a node's probability is above one half, with 3 if there is no data to analyze.
    """
    from healthctl.analysis.event_table import read_table
    from healthctl.analysis.fleet_record import build_fleet_record
    from healthctl.analysis.lemon_chart import write_lemon_chart
    from remediator.detection.lemons import LemonCosts, judge_lemons

    if plot is not None and plot.suffix.lower() not in {".svg", ".html"}:
        raise Failure(f"{plot}: write the plot to FILE.svg or FILE.html", Exit.USAGE)
    rows = read_table(file)
    at = _parse_as_of(as_of) if as_of is not None else math.inf
    record = build_fleet_record(rows, at)
    if not math.isfinite(at):
        at = float(record.history.time.max()) if record.history.time.size else 0.0
    judged = judge_lemons(record.history, at, fleet_nodes, factor, LemonCosts(gpus_per_node=gpus_per_node), record.gpus)
    answer = _build_analysis(record, judged, at)
    if plot is not None:
        write_lemon_chart(plot, answer.nodes[:PLOTTED], record, at)
    found = Exit.PROBLEM if any(node.probability > SUSPECT for node in answer.nodes) else Exit.OK
    screen.code = found if answer.nodes else Exit.UNKNOWN
    screen.show(answer, lambda: _render_analysis(answer))


def _parse_as_of(text: str) -> float:
    from healthctl.analysis.timestamps import parse_timestamps

    try:
        at = float(parse_timestamps([text.strip()])[0])
    except ValueError:
        at = math.nan
    if not math.isfinite(at):
        raise Failure(f"--as-of {text!r} is not a time: use epoch seconds or ISO 8601", Exit.USAGE)
    return at


def _build_analysis(record: FleetRecord, judged: Judged, at: float) -> LemonAnalysis:
    from remediator.detection.lemons import Mark

    nodes = []
    for index, name in enumerate(record.names):
        last = float(judged.last[index])
        evidence = {
            "incidents": float(judged.incidents[index]),
            "failures_to_blame": float(judged.blame[index]),
            "failures_expected": float(judged.service_d[index]) * judged.rate_per_day,
            "days_in_service": float(judged.service_d[index]),
            "times_the_fleet_if_lemon": float(judged.multiplier[index]),
            "repairs_90_days": float(judged.repairs[index]),
            **({"days_since_last": (at - last) / 86400} if math.isfinite(last) else {}),
            **{mark.name.lower(): float(judged.marks[index, mark]) for mark in Mark},
            "gpu_hours_saved": float(judged.saved_gpu_h[index]),
        }
        rounded = {key: _round_significant(value) for key, value in evidence.items()}
        nodes.append(
            SuspectNode(name, _round_significant(float(judged.probability[index])), judged.advice[index].value, rounded)
        )
    nodes.sort(key=lambda node: (-node.probability, -node.evidence["failures_to_blame"], node.node))
    fleet = {
        "nodes": float(round(judged.fleet_nodes)),
        "listed_nodes": float(len(record.names)),
        "failures_per_1000_node_days": _round_significant(judged.rate_per_day * 1000),
        "lemon_share": _round_significant(judged.lemon_share),
        "half_life_days": _round_significant(judged.half_life_d),
    }
    return LemonAnalysis(at, tuple(nodes), fleet, record.unknown_kinds, record.skipped)


def _round_significant(value: float) -> float:
    return float(f"{value:.5g}")


def _render_analysis(answer: LemonAnalysis) -> Iterator[Block]:
    fleet = answer.fleet
    if not answer.nodes:
        yield Line(f"as of {format_timestamp(answer.as_of)}: no data: the file has no earlier node event")
        return
    yield Line(
        f"as of {format_timestamp(answer.as_of)}: {fleet['listed_nodes']:.0f} nodes listed, {fleet['nodes']:.0f} in total, "
        f"{fleet['failures_per_1000_node_days']:.3g} failures in 1000 node-days"
    )
    if answer.unknown_kinds:
        words = ", ".join(f"{kind} ({count})" for kind, count in list(answer.unknown_kinds.items())[:8])
        yield Line(f"unknown kinds, ignored: {words}")
    if answer.skipped_rows:
        yield Line(f"rows without a node or a time, skipped: {answer.skipped_rows}")
    shown = [node for node in answer.nodes if node.action != "none"][:SHOWN]
    if not any(node.probability > SUSPECT for node in shown):
        yield Line("no lemon: no node fails more often than chance explains")
    yield Rows(shown, _COLUMNS)


_COLUMNS: tuple[Column[SuspectNode], ...] = (
    Column("NODE", lambda node: node.node),
    Column("LEMON", lambda node: f"{node.probability:.2f}"),
    Column("ACTION", lambda node: node.action),
    Column("INCIDENTS", lambda node: f"{node.evidence['incidents']:.0f}"),
    Column("TO BLAME", lambda node: f"{node.evidence['failures_to_blame']:.2f}"),
    Column("EXPECTED", lambda node: f"{node.evidence['failures_expected']:.2f}"),
    Column("LAST", lambda n: f"{n.evidence['days_since_last']:.1f}d ago" if "days_since_last" in n.evidence else ""),
    Column("GPU-HOURS SAVED", lambda node: f"{node.evidence['gpu_hours_saved']:.0f}"),
)
