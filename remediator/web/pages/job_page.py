"""`/jobs/NAME`: one job: its stragglers, swaps, step time, ranks, findings and nodes."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from starlette.responses import Response

from remediator.api.handler_context import HandlerContext, Refusal
from remediator.model.journal_records import JobRef
from remediator.model.swap_losses import describe_size, group_losses
from remediator.model.views_detectors import StragglerList
from remediator.model.views_jobs import JobList, JobView
from remediator.postmortem.svg_plot import format_short_number
from remediator.web import rank_heatmap
from remediator.web.fleet_heatmap import natural_sort_key
from remediator.web.page_request import PageRequest
from remediator.web.telemetry_plots import HEIGHT, WIDTH
from vocabulary.health import Health

NODES_SHOWN = 200
FOLDED = 40  # a longer list of nodes is folded
FINDINGS_SHOWN = 50
FRESH_S = 3.0


class _DrawnJob(NamedTuple):
    at: float  # UTC s
    nodes: list[str]
    dead: int
    picture: rank_heatmap.RankPicture
    windows: list[rank_heatmap.StepWindowSummary]
    curves: list[tuple[str, str]]  # its name and path
    low: str
    high: str


class JobDrawings:
    """Caches the drawings of jobs for `FRESH_S`, for all users. For use in the event loop only."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._kept: dict[tuple[str, int], tuple[float, _DrawnJob]] = {}

    async def get(self, service: HandlerContext, job: JobView) -> _DrawnJob:
        """The drawings of a job."""
        key = (job.job, job.attempt)
        async with self._one_at_a_time:
            now = service.clock.monotonic()
            self._kept = {name: kept for name, kept in self._kept.items() if now - kept[0] < FRESH_S}
            if key not in self._kept:
                self._kept[key] = now, await asyncio.to_thread(_draw_job, service, job)
            return self._kept[key][1]


async def show_job_page(visit: PageRequest) -> Response:
    """The page. Ranks are processed in a thread and not sent through JSON, because there may be a hundred thousand."""
    name = visit.request.path_params["job"]
    told = await visit.ask("/v1/jobs", JobList)
    job = next((each for each in told.jobs if each.job == name), None)
    if job is None:
        raise Refusal(404, f"no node reports a rank of job {name}", "the job may have ended; see the list of jobs")
    drawn = await _job_drawings(visit).get(visit.service, job)
    found = (await visit.ask("/v1/stragglers", StragglerList)).stragglers
    return await visit.page(
        "job.html.j2",
        title=f"Job {job.job}",
        job=job,
        drawn=drawn,
        swaps=[(each, group_losses(each.swap), describe_size(each.swap)) for each in job.swaps],
        stragglers=[each for each in found if (each.job, each.attempt) == (job.job, job.attempt)],
        nodes=(await asyncio.to_thread(_worst_findings, visit, drawn))[:NODES_SHOWN],
        folded=FOLDED,
        findings=job.findings[:FINDINGS_SHOWN],
        sampled=rank_heatmap.SAMPLE,
    )


def _worst_findings(visit: PageRequest, drawn: _DrawnJob) -> list[tuple[str, str]]:
    healths = [(name, visit.health(name)) for name in drawn.nodes]
    return sorted(healths, key=lambda pair: pair[1] == Health.HEALTHY.value)


def _job_drawings(visit: PageRequest) -> JobDrawings:
    state = visit.request.app.state
    if not hasattr(state, "drawings"):
        state.drawings = JobDrawings()
    drawings: JobDrawings = state.drawings
    return drawings


def _draw_job(service: HandlerContext, job: JobView) -> _DrawnJob:
    ref, nodes = JobRef(job.job, job.attempt), sorted(job.nodes, key=natural_sort_key)
    heard = [entry for node in nodes if (entry := service.report_registry.get(node)) is not None and ref in entry.jobs]
    crew = [(entry.node, share) for entry in heard for share in entry.shares if share.ref == ref]
    picture, told = (
        rank_heatmap.build_rank_picture(crew),
        rank_heatmap.summarize_step_windows(rank_heatmap.sample_ranks_with_windows(heard, ref)),
    )
    dead = sum(stage.dead for stage in picture.stages)
    rows = {
        "slowest rank": [window.slowest for window in told],
        "median": [window.step for window in told],
        "median without communication": [window.own for window in told],
    }
    values = [value for row in rows.values() for value in row] or [0.0]
    room = (max(values) - min(values)) * 0.1 or max(values) * 0.05 or 0.5
    low, high = max(0.0, min(values) - room), max(values) + room
    curves = (
        [(words, rank_heatmap.svg_curve_path(row, low, high, WIDTH, HEIGHT)) for words, row in rows.items()]
        if len(told) > 1
        else []
    )
    return _DrawnJob(
        service.clock.wall(), nodes, dead, picture, told, curves, format_short_number(low), format_short_number(high)
    )
