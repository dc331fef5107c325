"""`/jobs/NAME`: one job: how fast it steps, who holds it back and why, where its ranks are."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from msgspec.structs import replace
from starlette.responses import Response

from remediator.api import render_jobs
from remediator.api.service import Refusal, Service
from remediator.model.views_jobs import JobView
from remediator.model.views_watch import StragglerList
from remediator.web import ranks
from remediator.web.plots import HEIGHT, WIDTH, number
from remediator.web.visit import Visit

NODES_SHOWN = 200
FINDINGS_SHOWN = 50


class _Drawn(NamedTuple):
    job: JobView
    dead: int
    picture: ranks.Picture
    windows: list[ranks.Window]
    curves: list[tuple[str, str]]  # its name and path
    low: str
    high: str


async def show(visit: Visit) -> Response:
    """The page. A hundred thousand ranks are looked at away from the loop, and never sent through JSON."""
    drawn = await asyncio.to_thread(_draw, visit.service, visit.request.path_params["job"])
    found = (await visit.ask("/v1/stragglers", StragglerList)).stragglers
    job = drawn.job
    return await visit.page(
        "job.html.j2",
        title=f"Job {job.job}",
        job=job,
        drawn=drawn,
        stragglers=[each for each in found if (each.job, each.attempt) == (job.job, job.attempt)],
        nodes=[(name, visit.health(name)) for name in job.nodes[:NODES_SHOWN]],
        findings=job.findings[:FINDINGS_SHOWN],
        sampled=ranks.SAMPLE,
    )


def _draw(service: Service, name: str) -> _Drawn:
    job = render_jobs.job(service.engine.snapshot, service.roster, name)
    if job is None:
        raise Refusal(404, f"no node holds a rank of job {name}", "see the list of jobs: it may have ended")
    picture, told = ranks.picture(job.ranks), ranks.windows(job.ranks)
    dead = sum(stage.dead for stage in picture.stages)
    rows = {
        "slowest rank": [window.slowest for window in told],
        "median": [window.step for window in told],
        "median without communication": [window.own for window in told],
    }
    values = [value for row in rows.values() for value in row] or [0.0]
    low, high = 0.0, max(values) * 1.08 or 1.0
    curves = (
        [(words, ranks.curve(row, low, high, WIDTH, HEIGHT)) for words, row in rows.items()] if len(told) > 1 else []
    )
    return _Drawn(replace(job, ranks=()), dead, picture, told, curves, number(low), number(high))
