"""The last hour of a node as the API answers it. Times are UTC seconds by the centre's clock."""

from __future__ import annotations

import msgspec


class SeriesView(msgspec.Struct, frozen=True):
    """One curve. `gpu` is the GPU's index in the node, None: the host. A value says the worst of the half minute that began at its time."""

    gpu: int | None
    name: str
    unit: str
    times: tuple[float, ...]
    values: tuple[float, ...]


class TelemetryView(msgspec.Struct, frozen=True):
    """`GET /v1/nodes/{node}/telemetry`. `at` is when the node told it last; None: it has not told yet, ask again in a second.

    Each question asks the node to go on telling until `until`.
    """

    node: str
    at: float | None
    until: float
    series: tuple[SeriesView, ...]
