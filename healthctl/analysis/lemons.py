"""`healthctl analyze lemons`: which nodes fail again and again, from a record of node events. Works offline."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from healthctl.analysis.answers import SuspectNode
from healthctl.exits import Exit, Failure
from healthctl.output import Block, Column, Line, Rows, moment
from healthctl.screen import Screen, output_options

if TYPE_CHECKING:
    from healthctl.analysis.fleet_record import FleetRecord
    from remediator.detect.lemons import Judged

SUSPECT = 0.5
SHOWN = 20
PLOTTED = 25


class Answer(msgspec.Struct, frozen=True):
    """What programs get: nodes, most suspect first; the fleet they are compared with; what was not understood."""

    as_of: float
    nodes: tuple[SuspectNode, ...]
    fleet: dict[str, float]
    unknown_kinds: dict[str, int]
    skipped_rows: int


@click.command(epilog="Example: healthctl analyze lemons events.csv --as-of 2026-10-01 --nodes 1024")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--as-of", "as_of", help="Judge as of this moment (epoch seconds or ISO 8601); default: the last row's.")
@click.option("--nodes", "fleet_nodes", type=click.IntRange(1, 10_000_000),
              help="Nodes of the fleet, where nodes without events are not in FILE; default: estimated.")  # fmt: skip
@click.option("--factor", type=click.FloatRange(3, 200), default=3.0, show_default=True,
              help="How many times the fleet's failure rate makes a lemon.")  # fmt: skip
@click.option("--gpus-per-node", type=click.FloatRange(1, 1024), default=8.0, show_default=True,
              help="Where FILE does not tell.")  # fmt: skip
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Also draw FILE.svg or FILE.html.")
@output_options
def lemons(
    screen: Screen, file: Path, as_of: str | None, fleet_nodes: int | None, factor: float, gpus_per_node: float,
    plot: Path | None,
) -> None:  # fmt: skip
    """Read node events from FILE (CSV, JSON lines or Parquet) and say which nodes fail more often than chance explains.

    Columns: node, time, kind; optional: start, end, duration, job, user, nodes, code, rack, batch, driver, gpus.
    docs/explanation/lemons.md tells the kinds. Nothing after --as-of is used. Ends with 1 if a node is above one half,
    with 3 if there is nothing to judge.
    """
    from healthctl.analysis.fleet_record import fleet_record
    from healthctl.analysis.lemons_plot import draw
    from healthctl.analysis.table import read_table
    from remediator.detect.lemons import Prices, judge

    if plot is not None and plot.suffix.lower() not in {".svg", ".html"}:
        raise Failure(f"{plot}: a plot is FILE.svg or FILE.html", Exit.USAGE)
    rows = read_table(file)
    at = _moment(as_of) if as_of is not None else math.inf
    record = fleet_record(rows, at)
    if not math.isfinite(at):
        at = float(record.history.time.max()) if record.history.time.size else 0.0
    judged = judge(record.history, at, fleet_nodes, factor, Prices(gpus_per_node=gpus_per_node), record.gpus)
    answer = _answer(record, judged, at)
    if plot is not None:
        draw(plot, answer.nodes[:PLOTTED], record, at)
    found = Exit.PROBLEM if any(node.probability > SUSPECT for node in answer.nodes) else Exit.OK
    screen.code = found if answer.nodes else Exit.UNKNOWN
    screen.show(answer, lambda: _page(answer))


def _moment(text: str) -> float:
    from healthctl.analysis.moments import seconds_of_all

    try:
        at = float(seconds_of_all([text.strip()])[0])
    except ValueError:
        at = math.nan
    if not math.isfinite(at):
        raise Failure(f"--as-of {text!r} is no time: epoch seconds or ISO 8601", Exit.USAGE)
    return at


def _answer(record: FleetRecord, judged: Judged, at: float) -> Answer:
    from remediator.detect.lemons import Mark

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
        rounded = {key: _rounded(value) for key, value in evidence.items()}
        nodes.append(SuspectNode(name, _rounded(float(judged.probability[index])), judged.advice[index].value, rounded))
    nodes.sort(key=lambda node: (-node.probability, -node.evidence["failures_to_blame"], node.node))
    fleet = {
        "nodes": float(round(judged.fleet_nodes)),
        "listed_nodes": float(len(record.names)),
        "failures_per_1000_node_days": _rounded(judged.rate_per_day * 1000),
        "lemon_share": _rounded(judged.lemon_share),
        "half_life_days": _rounded(judged.half_life_d),
    }
    return Answer(at, tuple(nodes), fleet, record.unknown_kinds, record.skipped)


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _page(answer: Answer) -> Iterator[Block]:
    fleet = answer.fleet
    if not answer.nodes:
        yield Line(f"as of {moment(answer.as_of)}: nothing to judge, the file has no row of a node up to then")
        return
    yield Line(
        f"as of {moment(answer.as_of)}: {fleet['listed_nodes']:.0f} nodes told of, {fleet['nodes']:.0f} in all, "
        f"{fleet['failures_per_1000_node_days']:.3g} failures in 1000 node-days"
    )
    if answer.unknown_kinds:
        words = ", ".join(f"{kind} ({count})" for kind, count in list(answer.unknown_kinds.items())[:8])
        yield Line(f"kinds not known, taken for nothing: {words}")
    if answer.skipped_rows:
        yield Line(f"rows without a node or a time, passed over: {answer.skipped_rows}")
    shown = [node for node in answer.nodes if node.action != "none"][:SHOWN]
    if not any(node.probability > SUSPECT for node in shown):
        yield Line("nobody: no node fails more often than chance explains")
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
