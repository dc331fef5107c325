"""Host memory errors, corrected and uncorrected."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


class Dimm(NamedTuple):
    """One memory module, or errors without a module (`dimm` is then empty). Counts since boot."""

    controller: str
    dimm: str
    label: str  # as printed on the board, if the firmware reports it
    corrected: int | None
    uncorrected: int | None


class EdacSample(NamedTuple):
    """All modules of all controllers."""

    dimms: tuple[Dimm, ...]


METRICS = (
    Family(
        rows="dimms",
        labels=("controller", "dimm", "label"),
        metrics=(
            Metric(
                "healthd_host_memory_errors_total",
                "Errors of the host's memory since boot.",
                "corrected",
                "counter",
                labels=(("kind", "corrected"),),
            ),
            Metric(
                "healthd_host_memory_errors_total",
                "",
                "uncorrected",
                "counter",
                labels=(("kind", "uncorrected"),),
            ),
        ),
    ),
)
