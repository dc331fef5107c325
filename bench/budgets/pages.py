"""How long a person waits for a page with a whole fleet behind it."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import web_pages, web_work_pages
from bench.page_timing import BUDGET_MS, Look, time_page
from bench.remediator_load import DICE
from bench.report.records import Budget, Effort, Figure, Measured, at_most, summarise_values
from bench.web_pages import Looked, logged_in
from bench.web_work_pages import Working

SETTLES_S = 20.0  # a fleet that has just come is judged first


def measure_pages(effort: Effort) -> Measured:
    """The pages of the fleet, then those of the work on it, each on a controller of its own."""
    nodes, times = effort.either(4000, 12_500), effort.either(2, 5)
    DICE.seed(time.time_ns())  # another port than a run beside this one
    with tempfile.TemporaryDirectory() as folder:
        fleet = Looked(Path(folder), nodes)
        looks = [*_looks(fleet, times)]
    with tempfile.TemporaryDirectory() as folder:
        working = Working(Path(folder), nodes, effort.either(10_000, 300_000))
        looks += _looks(working, times)
    return Measured(
        figures=tuple(_figure(each) for each in looks),
        how=(
            f"{nodes:,} nodes have reported, a hundred of them a fault; then the same with one job on all of them and a long audit log. {times} looks at each page "
            f"with a pause between them, by a person logged in, over loopback. The dearest page for the remediator took {max(each.processor_ms for each in looks):.0f} ms of processor."
        ),
        because="the page is made by the one process that also takes in reports and judges steps",
        moves="a processor that is not shared; fewer rows on the page",
    )


def _looks(fleet: Looked, times: int) -> Iterator[Look]:
    fleet.start()
    try:
        time.sleep(1)  # until it has read who the nodes are
        asyncio.run(fleet.all_report())
        time.sleep(SETTLES_S)
        with logged_in(fleet) as (session, url):
            for path in _pages(fleet, url):
                seen = time_page(session, url, path, times, lambda: fleet.usage().cpu_s)
                yield seen._replace(path=re.sub(r"/inc-[0-9a-f]+", "/ID", path))
    finally:
        fleet.stop()


def _pages(fleet: Looked, url: str) -> list[str]:
    if not isinstance(fleet, Working):
        fleet.tell_telemetry(next(iter(fleet.broken)))
        return web_pages.list_measured_pages(fleet)
    return web_work_pages.list_work_pages(fleet, str(web_work_pages.list_pending_approvals(fleet, url)[0]["incident"]))


def _figure(each: Look) -> Figure:
    return Figure(
        named=f"`{each.path}`", unit="ms", repeats=(summarise_values(each.took_ms),), limits=at_most(p50=BUDGET_MS)
    )


BUDGET = Budget("pages", "A page of a fleet of 12 500 nodes", "< 300 ms", measure_pages)
