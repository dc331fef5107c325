"""NVSwitch errors in the log of NVIDIA's fabric manager."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


class SwitchError(NamedTuple):
    """One line about one error. `stamp` is the log's own time, unparsed."""

    stamp: str
    fatal: bool
    code: str
    pci: str
    port: int | None
    text: str


class FabricManagerSample(NamedTuple):
    """The errors among the log's last lines, oldest first, and how many of its lines are errors of any kind."""

    errors: tuple[SwitchError, ...]
    error_lines: int


METRICS = (
    Family(
        rows="",
        labels=(),
        metrics=(Metric("healthd_fabric_manager_error_lines", "Error lines at the end of its log.", "error_lines"),),
    ),
)
