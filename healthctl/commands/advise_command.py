"""`healthctl advise`: parameter recommendations with their costs. Changes nothing; only `advise_placement` queries the remediator."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec

from healthctl.api_client.remediator_client import RemediatorClient, server_options
from healthctl.cli.screen import Screen, output_options
from healthctl.durations import DurationParam, format_duration_short
from healthctl.exit_codes import Exit, Failure
from healthctl.rendering.blocks import Block, Column, Facts, Line, Rows
from vocabulary.messages.job_hazard import NodeRisk, Placement
from vocabulary.text.plurals import format_count

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
NODES_MAX = 10_000_000


class CheckpointChoice(msgspec.Struct, frozen=True):
    """One interval and the shares of time it wastes; `lost_gpu_hours_per_day` is that waste for this job."""

    interval_s: float
    times_optimum: float
    waste: float
    checkpoint: float
    rework: float
    restart: float
    lost_gpu_hours_per_day: float


class CheckpointAdvice(msgspec.Struct, frozen=True):
    """The recommendation: times in seconds, waste as shares of 1, the optimum in the middle of `choices`."""

    job_mtbf_s: float
    young_daly_s: float
    daly_s: float
    interval_s: float
    choices: tuple[CheckpointChoice, ...]


@click.group(
    epilog="Examples: healthctl advise checkpoint --cost 60s --nodes 512 --mtbf 50000h; healthctl advise placement --nodes 64"
)
def advise() -> None:
    """Recommend a checkpoint interval, a number of spares or a placement, with the cost of each choice."""


@advise.command("checkpoint", epilog="Example: healthctl advise checkpoint --cost 60s --nodes 512 --mtbf 50000h")
@click.option("--cost", type=DurationParam(), required=True, help="How long a save blocks training, such as 60s.")
@click.option("--nodes", type=click.IntRange(1, NODES_MAX), required=True, help="Number of nodes of the job.")
@click.option(
    "--mtbf", type=DurationParam(), required=True, help="Mean time between failures of one node, such as 50000h."
)
@click.option("--gpus-per-node", type=click.IntRange(1, 1024), default=8, show_default=True,
              help="GPUs per node; shows the waste in GPU-hours.")  # fmt: skip
@click.option("--restart", type=DurationParam(zero=True), default="10m", show_default=True,
              help="Time from a failure until training resumes.")  # fmt: skip
@click.option("--write", type=DurationParam(zero=True), default="0s", show_default=True,
              help="How long an asynchronous save continues in the background.")  # fmt: skip
@output_options
def advise_checkpoint_interval(
    screen: Screen, cost: float, nodes: int, mtbf: float, gpus_per_node: int, restart: float, write: float
) -> None:
    """Recommend a checkpoint interval.

    Computes the optimum by Daly's formula, and the waste of longer and shorter intervals, from the given figures only.
    A running job measures its own costs (docs/explanation/checkpoint-interval.md).
    """
    from healthd.trainer.interval.optimal_interval import daly_s, estimate_waste, young_daly_s

    job_mtbf_s = mtbf / nodes
    if job_mtbf_s < 1:
        raise Failure(f"{nodes} nodes with an MTBF of {format_duration_short(mtbf)} fail every {format_duration_short(job_mtbf_s)}: "
                      "no checkpoint helps; check --mtbf, the value for one node", Exit.USAGE)  # fmt: skip
    first_order_s, optimum_s = young_daly_s(cost, job_mtbf_s), daly_s(cost, job_mtbf_s)
    best_s = max(optimum_s, write)
    choices = []
    for factor in FACTORS:
        waste = estimate_waste(best_s * factor, cost, job_mtbf_s, restart, write)
        lost = waste.total * nodes * gpus_per_node * 24
        choices.append(
            CheckpointChoice(best_s * factor, factor, waste.total, waste.checkpoint, waste.rework, waste.restart, lost)
        )
    advice = CheckpointAdvice(job_mtbf_s, first_order_s, optimum_s, best_s, tuple(choices))
    screen.show(advice, lambda: _render_checkpoint_advice(advice, write))


def _render_checkpoint_advice(advice: CheckpointAdvice, write_s: float) -> Iterator[Block]:
    """Format for people."""
    bound = " (the duration of a write: one save at a time)" if advice.interval_s == write_s else ""
    yield Facts(
        [
            ("save every", format_duration_short(advice.interval_s) + bound),
            ("the job fails every", format_duration_short(advice.job_mtbf_s)),
            ("sqrt(2 C F)", format_duration_short(advice.young_daly_s)),
            ("Daly, higher order", format_duration_short(advice.daly_s)),
        ]
    )
    yield Rows(advice.choices, _CHOICES)
    if write_s:
        yield Line("Intervals cannot be shorter than a write: one save at a time.")


_CHOICES: tuple[Column[CheckpointChoice], ...] = (
    Column("SAVE EVERY", lambda c: format_duration_short(c.interval_s)),
    Column("", lambda c: "optimum" if c.times_optimum == 1 else f"{c.times_optimum:g}x"),
    Column("WASTE", lambda c: f"{c.waste * 100:.2f} %"),
    Column("SAVING", lambda c: f"{c.checkpoint * 100:.2f} %"),
    Column("REWORK", lambda c: f"{c.rework * 100:.2f} %"),
    Column("RESTART", lambda c: f"{c.restart * 100:.2f} %"),
    Column("GPU-HOURS LOST PER DAY", lambda c: f"{c.lost_gpu_hours_per_day:.4g}"),
)


@advise.command(
    "spares", epilog="Example: healthctl advise spares --nodes 512 --failures-per-1000-node-days 5 --repair 20h"
)
@click.option(
    "--nodes", type=click.IntRange(1, NODES_MAX), required=True, help="Number of nodes that must work at the same time."
)
@click.option("--failures-per-1000-node-days", "rate", type=click.FloatRange(0, 1e6), required=True,
              help="Node failure rate; published rates are 2 to 7.")  # fmt: skip
@click.option(
    "--repair", type=DurationParam(), required=True, help="Mean time until a failed node returns, such as 20h."
)
@click.option("--quantile", type=click.FloatRange(0.5, 0.99999), default=0.99, show_default=True,
              help="Share of time for which the spares must suffice.")  # fmt: skip
@output_options
def advise_spare_count(screen: Screen, nodes: int, rate: float, repair: float, quantile: float) -> None:
    """Recommend a number of spares. More nodes than that are seldom out at the same time."""
    from remediator.decisions.spare_nodes import spares_wanted

    wanted = spares_wanted(nodes, rate, repair, quantile)
    page = Facts(
        [
            (
                "spares",
                f"{wanted.spares} for {format_count(nodes, 'node')}, sufficient {quantile * 100:g} % of the time",
            ),
            ("mean nodes out of service", f"{wanted.out_on_average:.2f} nodes"),
            ("not included", "nodes that fail together: a rack, a switch, a bad driver"),
        ]
    )
    screen.show(wanted, lambda: [page])


@advise.command("placement", epilog="Example: healthctl advise placement --nodes 64")
@click.option("--nodes", type=click.IntRange(1, NODES_MAX), required=True, help="Number of nodes the job needs.")
@output_options
@server_options
def advise_placement(server: RemediatorClient, screen: Screen, nodes: int) -> None:
    """Recommend the free nodes least likely to fail. Uses findings and history."""
    found = server.get("/v1/placement", Placement, nodes=nodes)
    page: list[Block] = [
        Facts(
            [
                ("place on", ", ".join(found.chosen)),
                ("the job then fails every", format_duration_short(1 / found.per_s)),
                ("on random nodes", format_duration_short(1 / found.per_s_at_random)),
            ]
        ),
        Rows(found.avoided, _AVOIDED),
    ]
    screen.show(found, lambda: page)


_AVOIDED: tuple[Column[NodeRisk], ...] = (
    Column("AVOID", lambda risk: risk.node),
    Column("FAILS", lambda risk: f"{risk.factor:g}x"),
    Column("WHY", lambda risk: risk.why, prose=True),
)
