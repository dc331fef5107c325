"""`healthctl gpus`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from healthctl.api_client.remediator_client import RemediatorClient, server_options
from healthctl.cli.screen import Screen, view_options
from healthctl.cli.shell_completion import node_names
from healthctl.commands.nodes_command import health_option, matches_globs
from healthctl.rendering.blocks import Column, Rows, state_cell
from remediator.model.views_jobs import GpuList, GpuView

AT_ONCE = 10_000

GPUS: Sequence[Column[GpuView]] = (
    Column("NODE", lambda g: g.node),
    Column("GPU", lambda g: str(g.index)),
    Column("HEALTH", lambda g: state_cell(g.health)),
    Column("JOB", lambda g: g.job),
    Column("RANK", lambda g: "" if g.rank is None else str(g.rank)),
    Column("PCI", lambda g: g.pci, wide=True),
    Column("NAME", lambda g: g.name, wide=True),
    Column("SERIAL", lambda g: g.serial, wide=True),
    Column("UUID", lambda g: g.uuid, wide=True),
    Column("FINDINGS", lambda g: "; ".join(g.findings), prose=True),
)


@click.command(epilog="Example: healthctl gpus --node 'gpu-1*' --health unhealthy")
@click.option(
    "--node",
    "globs",
    multiple=True,
    metavar="GLOB",
    shell_complete=node_names,
    help="Filter by node name pattern, such as 'gpu-1*'. Can be repeated.",
)
@health_option
@click.option(
    "--job",
    "jobs",
    multiple=True,
    metavar="GLOB",
    help="Filter by job name pattern, such as 'llama*'. Can be repeated.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of GPUs to show.")
@view_options
@server_options
def gpus(
    server: RemediatorClient,
    screen: Screen,
    globs: tuple[str, ...],
    healths: tuple[str, ...],
    jobs: tuple[str, ...],
    limit: int | None,
) -> None:
    """List GPUs by node and index: health, findings, and the rank that runs on each."""

    def wanted(gpu: GpuView) -> bool:
        return (
            matches_globs(gpu.node, globs) and gpu.health in (healths or (gpu.health,)) and matches_globs(gpu.job, jobs)
        )

    pattern: dict[str, Any] = {"node": globs[0]} if len(globs) == 1 else {}
    found = server.get("/v1/gpus", GpuList, limit=AT_ONCE, **pattern)
    kept, page = [gpu for gpu in found.gpus if wanted(gpu)], found
    while len(page.gpus) == AT_ONCE and (limit is None or len(kept) < limit):
        last = page.gpus[-1]
        page = server.get("/v1/gpus", GpuList, limit=AT_ONCE, after=f"{last.node}/{last.index}", **pattern)
        kept += [gpu for gpu in page.gpus if wanted(gpu)]
    shown = GpuList(at=found.at, gpus=tuple(kept[:limit]))
    screen.show(
        shown, lambda: [Rows(shown.gpus, GPUS, "no matching GPU" if globs or healths or jobs else "no GPU reported")]
    )
