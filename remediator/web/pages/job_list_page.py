"""`/jobs`: every running job; the filter is in the query string."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from remediator.model.views_detectors import StragglerList
from remediator.model.views_jobs import JobList, JobView
from remediator.web.page_request import PageRequest

ON_A_PAGE = 200


async def show_job_list(visit: PageRequest) -> Response:
    """The list, jobs with problems first."""
    match, trouble = visit.query("match").strip(), visit.query("trouble") == "1"
    told = await visit.ask("/v1/jobs", JobList)
    slow = {each.job for each in (await visit.ask("/v1/stragglers", StragglerList)).stragglers}
    found = await asyncio.to_thread(_filter_jobs, told.jobs, match, trouble=trouble)
    return await visit.page(
        "jobs.html.j2",
        title="Jobs",
        jobs=found[:ON_A_PAGE],
        total=len(found),
        everything=len(told.jobs),
        ranks=sum(job.ranks_told for job in found),
        slow=slow,
        told_at=told.at,
        match=match,
        trouble=trouble,
    )


def _filter_jobs(jobs: tuple[JobView, ...], match: str, *, trouble: bool) -> list[JobView]:
    found = [job for job in jobs if match in job.job and (not trouble or job.verdicts or job.findings)]
    return sorted(
        found, key=lambda job: (not job.verdicts, -_worst_finding_rank(job), job.ranks_told >= job.world, job.job)
    )


def _worst_finding_rank(job: JobView) -> int:
    return max((finding.severity.rank for finding in job.findings), default=-1)
