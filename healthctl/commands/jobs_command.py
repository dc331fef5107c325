"""`healthctl jobs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

import click

from healthctl.api_client.remediator_client import RemediatorClient, RequestRefused, server_options
from healthctl.api_client.resource_names import NOT_FOUND, suggest_names
from healthctl.cli.default_group import DefaultListGroup
from healthctl.cli.screen import Screen, view_options
from healthctl.commands.nodes_command import matches_globs
from healthctl.pages.blast_radius import format_ranges
from healthctl.pages.node_page import FINDINGS
from healthctl.rendering.blocks import Block, Cell, Column, Facts, Line, Rows, Tone, format_timestamp
from remediator.model.swap_losses import describe_size, group_losses
from remediator.model.views_jobs import JobList, JobRank, JobView, ReportedSwap
from vocabulary.messages.swap_messages import JobSwap, SwapOutcome


def format_rank_counts(job: JobView) -> str:
    """The number of ranks, and how many of them report if not all do."""
    return str(job.world) if job.ranks_told == job.world else f"{job.ranks_told} of {job.world} reporting"


def format_losses(swap: JobSwap) -> str:
    """What was lost and what replaced it."""
    groups = [f"{format_ranges(group.ranks)} on {group.node} → {group.after or 'none'}" for group in group_losses(swap)]
    more = swap.lost_ranks - len(swap.lost)
    return "; ".join([*groups, f"{more} more"] if more > 0 else groups)


def format_outcome(swap: JobSwap) -> Cell:
    """How it ended, with the change of size and the reason."""
    bad = swap.outcome in (SwapOutcome.GIVEN_UP, SwapOutcome.RESTARTED)
    text = ", ".join(filter(None, (swap.outcome, describe_size(swap), swap.reason)))
    return Cell(text, Tone.BAD if bad else Tone.WARN if swap.outcome == SwapOutcome.UNDER_WAY else Tone.GOOD)


JOBS: Sequence[Column[JobView]] = (
    Column("JOB", lambda j: j.job),
    Column("RANKS", format_rank_counts),
    Column("NODES", lambda j: str(len(j.nodes))),
    Column("STEP", lambda j: str(j.step) if j.step >= 0 else ""),
    Column("STEP TIME", lambda j: f"{j.step_s:.3g} s" if j.step_s else ""),
    Column("PHASE", lambda j: j.phase),
    Column("ATTEMPT", lambda j: str(j.attempt), wide=True),
    Column("HEARD", lambda j: format_timestamp(j.at), wide=True),
    Column("VERDICTS", lambda j: Cell("; ".join(j.verdicts), Tone.WARN) if j.verdicts else "", prose=True),
)
SWAPS: Sequence[Column[ReportedSwap]] = (
    Column("SWAP", lambda s: format_timestamp(s.swap.at)),
    Column("LOST RANKS", lambda s: format_losses(s.swap)),
    Column("OUTCOME", lambda s: format_outcome(s.swap), prose=True),
    Column("SECONDS", lambda s: "" if s.swap.seconds is None else f"{s.swap.seconds:.3g}"),
    Column("PHASES", lambda s: ", ".join(f"{name} {each:.2g}" for name, each in s.swap.phases.items())),
    Column("STEPS LOST", lambda s: "" if s.swap.lost_steps is None else str(s.swap.lost_steps)),
    Column("STATE FROM", lambda s: s.swap.source, wide=True),
    Column("ATTEMPT", lambda s: str(s.swap.attempt), wide=True),
    Column("GENERATION", lambda s: str(s.swap.generation) if s.swap.generation >= 0 else "", wide=True),
    Column("REPORTED BY", lambda s: s.node, wide=True),
)
RANKS: Sequence[Column[JobRank]] = (
    Column("RANK", lambda r: str(r.status.rank)),
    Column("NODE", lambda r: r.node),
    Column("STEP", lambda r: str(r.status.step)),
    Column("STEP TIME", lambda r: f"{r.status.step_median:.3g} s" if r.status.step_median else ""),
    Column("PHASE", lambda r: r.status.phase),
    Column("SECTION", lambda r: r.status.section, wide=True),
    Column("PID", lambda r: str(r.status.pid), wide=True),
    Column("GPU", lambda r: r.status.gpu, wide=True),
    Column("HEARD", lambda r: format_timestamp(r.status.at)),
    Column("ALIVE", lambda r: "yes" if r.status.alive else Cell("no", Tone.BAD)),
)


@click.group(cls=DefaultListGroup, epilog="Examples: healthctl jobs; healthctl jobs show train-7 --watch")
def jobs() -> None:
    """Show training jobs: where they run, their progress, what slows them down."""


@jobs.command("list", epilog="Example: healthctl jobs list --node 'gpu-1*'")
@click.option(
    "--job",
    "globs",
    multiple=True,
    metavar="GLOB",
    help="Filter by job name pattern, such as 'llama*'. Can be repeated.",
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="GLOB",
    help="Filter by node name pattern, such as 'gpu-1*'. Can be repeated.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of jobs to show.")
@view_options
@server_options
def list_jobs(
    server: RemediatorClient, screen: Screen, globs: tuple[str, ...], nodes: tuple[str, ...], limit: int | None
) -> None:
    """List jobs by name."""
    found = server.get("/v1/jobs", JobList)
    kept = [
        job
        for job in found.jobs
        if matches_globs(job.job, globs) and (not nodes or any(matches_globs(n, nodes) for n in job.nodes))
    ]
    shown = JobList(at=found.at, jobs=tuple(kept[:limit]))
    screen.show(shown, lambda: [Rows(shown.jobs, JOBS, "no matching job" if globs or nodes else "no job reported")])


@jobs.command("show", epilog="Example: healthctl jobs show train-7 --watch")
@click.argument("name", metavar="JOB")
@view_options
@server_options
def show_job(server: RemediatorClient, screen: Screen, name: str) -> None:
    """Show one job in detail, with its ranks."""
    try:
        job = server.get(f"/v1/jobs/{quote(name, safe='')}", JobView)
    except RequestRefused as refused:
        if refused.status != NOT_FOUND:
            raise
        hint = suggest_names(name, (each.job for each in server.get("/v1/jobs", JobList).jobs))
        raise RequestRefused(f"{refused.message}{hint}", refused.status) from None
    screen.show(job, lambda: render_job_page(job))


def render_job_page(job: JobView) -> Iterator[Block]:
    """One job in detail."""
    silent = sorted(set(range(job.world)) - {rank.status.rank for rank in job.ranks}) if job.ranks else []
    yield Facts(
        [
            ("job", job.job),
            ("attempt", str(job.attempt)),
            ("ranks", format_rank_counts(job)),
            ("silent", Cell(f"ranks {format_ranges(silent)}", Tone.UNKNOWN) if silent else ""),
            ("nodes", f"{len(job.nodes)}: {', '.join(job.nodes)}"),
            ("step", str(job.step) if job.step >= 0 else ""),
            ("step time", f"{job.step_s:.3g} s (median)" if job.step_s else ""),
            ("phase", job.phase),
            ("last report", format_timestamp(job.at) if job.at else ""),
        ]
    )
    for verdict in job.verdicts:
        yield Line(Cell(verdict, Tone.WARN))
    if job.findings:
        yield Rows(job.findings, FINDINGS)
    if job.swaps:
        yield Rows(job.swaps, SWAPS)
    if job.ranks:
        yield Rows(job.ranks, RANKS)
