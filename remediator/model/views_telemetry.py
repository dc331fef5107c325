"""API views of a node's last hour of telemetry. Times are UTC seconds by the controller's clock."""

from __future__ import annotations

import msgspec


class SeriesView(msgspec.Struct, frozen=True):
    """One curve. `gpu` is the GPU's index in the node, None: the host.

    A value is the worst of the half minute from its time.
    """

    gpu: int | None
    name: str
    unit: str
    times: tuple[float, ...]
    values: tuple[float, ...]


class TelemetryView(msgspec.Struct, frozen=True):
    """`GET /v1/nodes/{node}/telemetry`. `at` is the time of the newest data; None: no data yet, retry in a second.

    Each request asks the node to send data until `until`.
    """

    node: str
    at: float | None
    until: float
    series: tuple[SeriesView, ...]
