"""The whole page, in the requested format: Prometheus text, or OpenMetrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from healthd.daemon_status import Status
from healthd.exporter.dcgm_metric_names import export_dcgm_metrics
from healthd.exporter.event_metrics import export_events
from healthd.exporter.gpu_metric_families import export_gpus
from healthd.exporter.job_metrics import export_jobs
from healthd.exporter.metric_families import OPENMETRICS_TYPE, TEXT_TYPE, Metric, wants_openmetrics, write_page
from healthd.exporter.node_metrics import export_node
from healthd.exporter.preflight_metrics import export_preflights
from healthd.exporter.process_metrics import export_process
from healthd.exporter.source_metrics import export_sources

# The client's Accept header → content type and body.
Page = Callable[[str], tuple[str, bytes]]


def make_page_renderer(
    status: Callable[[], Status],
    waiting: Callable[[], int],
    *,
    with_dcgm_names: bool = False,
    grave_xids: Sequence[str] = (),
) -> Page:
    """Return a function that renders the current page, for an Accept header.

    `grave_xids` are codes that have a counter at 0 before they were ever seen.
    """

    def render(accept: str) -> tuple[str, bytes]:
        openmetrics = wants_openmetrics(accept)
        families = [
            *_collect_families(status(), waiting(), grave_xids, with_dcgm_names=with_dcgm_names),
            *export_process(),
        ]
        return OPENMETRICS_TYPE if openmetrics else TEXT_TYPE, write_page(families, openmetrics=openmetrics)

    return render


def _collect_families(
    status: Status, waiting: int, grave_xids: Sequence[str], *, with_dcgm_names: bool
) -> Iterator[Metric]:
    yield from export_node(status, waiting)
    yield from export_events(status, grave_xids)
    yield from export_jobs(status)
    yield from export_gpus(status)
    yield from export_preflights(status)
    yield from export_sources(status)
    if with_dcgm_names:
        yield from export_dcgm_metrics(status)
