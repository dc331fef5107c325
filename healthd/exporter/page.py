"""The whole page, in the format that is asked for: Prometheus text, or OpenMetrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from healthd.exporter.dcgm_names import dcgm_names
from healthd.exporter.events import events
from healthd.exporter.gpus import gpus
from healthd.exporter.jobs import jobs
from healthd.exporter.node import node
from healthd.exporter.preflights import preflights
from healthd.exporter.sources import sources
from healthd.status import Status

# What the client accepts → content type and body.
Page = Callable[[str], tuple[str, bytes]]


class _Status(Collector):
    def __init__(self, status: Callable[[], Status], waiting: Callable[[], int], *, with_dcgm_names: bool) -> None:
        self._status = status
        self._waiting = waiting
        self._with_dcgm_names = with_dcgm_names

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        yield from node(status, self._waiting())
        yield from events(status)
        yield from jobs(status)
        yield from gpus(status)
        yield from preflights(status)
        yield from sources(status)
        if self._with_dcgm_names:
            yield from dcgm_names(status)


def metrics_page(status: Callable[[], Status], waiting: Callable[[], int], *, with_dcgm_names: bool = False) -> Page:
    """Something that renders the page as it stands, for an Accept header."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Status(status, waiting, with_dcgm_names=with_dcgm_names))

    def render(accept: str) -> tuple[str, bytes]:
        encode, content_type = choose_encoder(accept)
        return content_type, encode(registry)

    return render
