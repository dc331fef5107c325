"""NVMe disks that fail, or report that they soon will."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from healthd.collectors.nvme import NvmeDisk, NvmeSample
from healthd.findings.facts import LevelFact, Moment, judge_level
from healthd.findings.hysteresis import Dwell, Growth
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

CHECK = "nvme"
WARNINGS = {1: "spare blocks run out", 2: "too hot or too cold", 4: "unreliable", 8: "read-only", 16: "no backup power"}
UNSAFE_BITS = 4 | 8  # data on it is no longer safe, or it is read-only


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `nvme` of the thresholds."""

    used_percent: float
    media_errors_in_window: float
    window_s: float
    raise_after_s: float
    clear_after_s: float


class NvmeCheck:
    """Remembers how long a controller has been missing, and the rate of media errors."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._gone = Dwell(limits.raise_after_s, limits.clear_after_s)
        self._errors = Growth(limits.window_s)

    def judge(self, sample: NvmeSample, now: Moment) -> list[LevelFact]:
        """Return facts for failed controllers, their own warnings, wear, and media errors."""
        return [fact for disk in sample.disks for fact in self._judge(disk, now)]

    def _judge(self, disk: NvmeDisk, now: Moment) -> list[LevelFact]:
        limits = self._limits
        bits = disk.critical_bits
        words = [text for bit, text in WARNINGS.items() if (bits or 0) & bit]
        severity = Severity.ERROR if (bits or 0) & UNSAFE_BITS else Severity.WARNING
        growth = self._errors.add(disk.name, disk.media_errors, now.monotonic)
        gone = self._gone.judge(disk.name, disk.state != "live", now.monotonic)
        worn = None if disk.used_percent is None else disk.used_percent >= limits.used_percent
        losing = None if growth is None else growth >= limits.media_errors_in_window
        critical = None if bits is None else bits != 0
        state, said = (
            f"its controller is {disk.state or 'missing'}",
            f"it reports: {', '.join(words) or f'bits {bits}'}",
        )
        wear, errors = {"used_percent": disk.used_percent}, {"errors": growth}
        return [
            *_judge_disk(gone, disk, "not_live", state, now, severity=Severity.ERROR),
            *_judge_disk(critical, disk, "critical", said, now, severity=severity, evidence={"bits": bits}),
            *_judge_disk(worn, disk, "worn", "it has reached its rated life", now, evidence=wear),
            *_judge_disk(losing, disk, "media_errors", "it has lost data", now, evidence=errors),
        ]


def _judge_disk(
    holds: bool | None,  # noqa: FBT001 - the answer itself
    disk: NvmeDisk,
    code: str,
    text: str,
    now: Moment,
    *,
    severity: Severity = Severity.WARNING,
    evidence: Mapping[str, float | None] | None = None,
) -> list[LevelFact]:
    component = Component(ComponentKind.HOST, name=f"nvme {disk.name}")
    summary = f"{disk.name} ({disk.model} {disk.serial}): {text}"
    return judge_level(holds, now, (CHECK, code), component, summary, severity=severity, evidence=evidence)
