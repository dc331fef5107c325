"""The last hour of telemetry of the few nodes that operators view now.

In memory and for display only: no decision uses it.

A view leaves a request that expires by itself. The node gets it with the answer to its order poll or report, and sends
its buckets with its reports until then. Its data is validated by `vocabulary.messages.telemetry_messages`. For one
thread. Times are the controller's monotonic seconds unless noted.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Mapping
from math import isnan, nan

from msgspec import UNSET, Raw, UnsetType

from remediator.model.views_telemetry import SeriesView, TelemetryView
from vocabulary.hardware.throttle_reasons import THROTTLE_REASONS
from vocabulary.messages.telemetry_messages import (
    BUCKET_S,
    BUCKETS,
    GPU_SERIES,
    HOST,
    HOST_SERIES,
    THROTTLE,
    TelemetryError,
    TelemetryPart,
    TelemetryRequest,
    bucket_of,
    read_part,
)

REQUEST_S = 60.0
NODES_MAX = 64
SERIES_MAX = 20_000  # of all nodes, a kilobyte each
UNASKED, STRANGER = "nobody asked", "of a GPU that the report does not name"


class TelemetryCurves:
    """One node's data by GPU (PCI address) and name: a slot per bucket, the oldest overwritten."""

    def __init__(self) -> None:
        self.boot_id = ""
        self.series: dict[tuple[str, str], array[float]] = {}
        self._newest = -1  # bucket number
        self._begin = 0.0  # start of bucket 0, UTC s

    def take(self, part: TelemetryPart, boot_id: str, gpus: Collection[str], wall: float) -> bool:
        """Store the node's data. True if earlier data does not continue: the node restarted."""
        newest = bucket_of(part.monotonic)
        broken = bool(self.series) and (boot_id != self.boot_id or newest < self._newest)
        if broken:
            self.series.clear()
        for key in [key for key in self.series if key[0] not in gpus and key[0] != HOST]:
            del self.series[key]
        for bucket in range(max(self._newest, newest - BUCKETS) + 1, newest + 1):
            for kept in self.series.values():
                kept[bucket % BUCKETS] = nan
        self.boot_id, self._newest, self._begin = boot_id, newest, wall - part.monotonic
        for block in part.blocks:
            for name, values in block.columns.items():
                kept = self.series.setdefault((block.gpu, name), array("d", [nan]) * BUCKETS)
                for bucket, value in enumerate(values, block.first):
                    kept[bucket % BUCKETS] = nan if value is None else value
        return broken

    def views(self, indices: Mapping[str, int]) -> tuple[SeriesView, ...]:
        """Return curves by GPU and name, with one per throttle reason."""
        found: list[SeriesView] = []
        for (gpu, name), kept in self.series.items():
            index = None if gpu == HOST else indices.get(gpu)
            if index is None and gpu != HOST:
                continue
            buckets = range(self._newest - BUCKETS + 1, self._newest + 1)
            points = [(bucket, value) for bucket in buckets if not isnan(value := kept[bucket % BUCKETS])]
            if not points:  # the last data is an hour old
                continue
            times = tuple(round(self._begin + bucket * BUCKET_S) for bucket, _ in points)
            values = tuple(value for _, value in points)
            found += (
                _throttle_reason_series(index, times, values)
                if name == THROTTLE
                else [_series_view(index, name, times, values)]
            )
        return tuple(sorted(found, key=lambda view: (view.gpu is not None, view.gpu or 0, view.name)))


class _WatchedNode:
    """One viewed node: until when, whether it knows, its last data and when it came."""

    def __init__(self) -> None:
        self.until = 0.0
        self.knows = False
        self.told_at: float | None = None  # None: no data that continues to now
        self.told_wall: float | None = None  # UTC s
        self.curves = TelemetryCurves()


class TelemetryCache:
    """The nodes requested last. `dropped` counts rejected parts of reports by reason."""

    def __init__(self) -> None:
        self._nodes: dict[str, _WatchedNode] = {}  # most recently requested last
        self.dropped: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._nodes)

    def ask(self, node: str, now: float) -> bool:
        """Request a node's telemetry for a viewer. True if that is new, so that the node should be notified at once."""
        watched = self._nodes.pop(node, None) or _WatchedNode()
        self._nodes[node] = watched
        news = watched.until <= now
        watched.until = now + REQUEST_S
        if news:
            watched.knows = False
        while len(self._nodes) > NODES_MAX:
            self._forget_oldest()
        return news

    def untold(self, node: str, now: float) -> bool:
        """Return whether there is a request that the node does not know of."""
        watched = self._nodes.get(node)
        return watched is not None and watched.until > now and not watched.knows

    def pending_request(self, node: str, now: float) -> TelemetryRequest | None:
        """Return the request for the node that polls now; None if there is none."""
        watched = self._nodes.get(node)
        if watched is None or watched.until <= now:
            return None
        watched.knows = True
        whole_s = BUCKETS * BUCKET_S
        back_s = whole_s if watched.told_at is None else min(whole_s, now - watched.told_at + BUCKET_S)
        return TelemetryRequest(lasts_s=round(watched.until - now, 3), back_s=round(back_s, 3))

    def take(
        self, node: str, boot_id: str, gpus: Collection[str], told: Raw | UnsetType, now: float, wall: float
    ) -> bool:
        """Store the telemetry of a report (`gpus`: the PCI addresses it names).

        True if accepted; otherwise counted and dropped.
        """
        if told is UNSET:
            return False
        watched = self._nodes.get(node)
        if watched is None or watched.until <= now:
            self.dropped[UNASKED] += 1
            return False
        try:
            part = read_part(memoryview(told))
        except TelemetryError as error:
            self.dropped[str(error)] += 1
            return False
        if any(block.gpu != HOST and block.gpu not in gpus for block in part.blocks):
            self.dropped[STRANGER] += 1
            return False
        broken = watched.curves.take(part, boot_id, gpus, wall)
        watched.told_at, watched.told_wall = None if broken else now, wall
        while len(self._nodes) > 1 and sum(len(each.curves.series) for each in self._nodes.values()) > SERIES_MAX:
            self._forget_oldest()
        return True

    def told_at(self, node: str) -> float | None:
        """Return when the node's last data was accepted; None if never, or without a request."""
        watched = self._nodes.get(node)
        return None if watched is None else watched.told_at

    def view(self, node: str, indices: Mapping[str, int], now: float, wall: float) -> TelemetryView:
        """Return the view for operators; `indices` are the node's GPU indices by PCI address."""
        watched = self._nodes.get(node) or _WatchedNode()
        until = wall + max(0.0, watched.until - now)
        return TelemetryView(node, watched.told_wall, round(until, 3), watched.curves.views(indices))

    def _forget_oldest(self) -> None:
        del self._nodes[next(iter(self._nodes))]


def _series_view(gpu: int | None, name: str, times: tuple[float, ...], values: tuple[float, ...]) -> SeriesView:
    return SeriesView(gpu, name, (HOST_SERIES if gpu is None else GPU_SERIES)[name].unit, times, values)


def _throttle_reason_series(gpu: int | None, times: tuple[float, ...], masks: tuple[float, ...]) -> list[SeriesView]:
    """Return a curve of 0 and 1 for each throttle reason given in this hour."""
    return [
        SeriesView(gpu, f"throttled: {reason}", "0 or 1", times, values)
        for bit, reason in THROTTLE_REASONS.items()
        if any(values := tuple(float(bool(int(mask) & bit)) for mask in masks))
    ]
