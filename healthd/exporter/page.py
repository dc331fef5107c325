"""The whole page, in the format that is asked for: Prometheus text, or OpenMetrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from healthd.exporter.dcgm_names import dcgm_names
from healthd.exporter.events import events
from healthd.exporter.families import OPENMETRICS_TYPE, TEXT_TYPE, Metric, wants_openmetrics, write_page
from healthd.exporter.gpus import gpus
from healthd.exporter.jobs import jobs
from healthd.exporter.node import node
from healthd.exporter.preflights import preflights
from healthd.exporter.process import process
from healthd.exporter.sources import sources
from healthd.status import Status

# What the client accepts → content type and body.
Page = Callable[[str], tuple[str, bytes]]


def metrics_page(
    status: Callable[[], Status],
    waiting: Callable[[], int],
    *,
    with_dcgm_names: bool = False,
    grave_xids: Sequence[str] = (),
) -> Page:
    """Something that renders the page as it stands, for an Accept header.

    `grave_xids` are codes that have a counter at 0 before they were ever seen.
    """

    def render(accept: str) -> tuple[str, bytes]:
        openmetrics = wants_openmetrics(accept)
        families = [*_families(status(), waiting(), grave_xids, with_dcgm_names=with_dcgm_names), *process()]
        return OPENMETRICS_TYPE if openmetrics else TEXT_TYPE, write_page(families, openmetrics=openmetrics)

    return render


def _families(status: Status, waiting: int, grave_xids: Sequence[str], *, with_dcgm_names: bool) -> Iterator[Metric]:
    yield from node(status, waiting)
    yield from events(status, grave_xids)
    yield from jobs(status)
    yield from gpus(status)
    yield from preflights(status)
    yield from sources(status)
    if with_dcgm_names:
        yield from dcgm_names(status)
