"""File systems that are full or have become read-only."""

from __future__ import annotations

import msgspec

from healthd.collectors.disks import Disk, DisksSample
from healthd.findings.facts import LevelFact, Moment, judge_level
from healthd.findings.hysteresis import Dwell
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

CHECK = "disks"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `disks` of the thresholds."""

    free_percent: float
    free_bytes: float
    inodes_free_percent: float
    raise_after_s: float
    clear_after_s: float


class DisksCheck:
    """Remembers which file systems were writable: one that is read-only by design never was."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._dwell = Dwell(limits.raise_after_s, limits.clear_after_s)
        self._written: set[str] = set()

    def judge(self, sample: DisksSample, now: Moment) -> list[LevelFact]:
        """Return a fact per full file system, and per file system that became read-only."""
        facts: list[LevelFact] = []
        for disk in sample.disks:
            facts += self._space(disk, now)
            facts += self._read_only(disk, now)
        return facts

    def _space(self, disk: Disk, now: Moment) -> list[LevelFact]:
        limits = self._limits
        free, room = _compute_percent(disk.free_bytes, disk.size_bytes), disk.free_bytes
        bad = None if free is None or room is None else free < limits.free_percent and room < limits.free_bytes
        inodes = _compute_percent(disk.inodes_free, disk.inodes)
        few = None if inodes is None else inodes < limits.inodes_free_percent
        facts = judge_level(
            self._dwell.judge(("full", disk.mount), bad, now.monotonic),
            now,
            (CHECK, "full"),
            _make_disk_component(disk),
            f"{disk.mount} ({disk.device}) is nearly full",
            evidence={"free_percent": round(free or 0.0, 2), "free_bytes": room},
        )
        if disk.inodes is None:
            return facts  # it has no such limit
        return facts + judge_level(
            self._dwell.judge(("files", disk.mount), few, now.monotonic),
            now,
            (CHECK, "files"),
            _make_disk_component(disk),
            f"{disk.mount} ({disk.device}) has hardly any free inodes",
            evidence={"inodes_free_percent": round(inodes or 0.0, 2)},
        )

    def _read_only(self, disk: Disk, now: Moment) -> list[LevelFact]:
        if not disk.read_only:
            self._written.add(disk.mount)
        # Read-only from the first sample on: by design, unless a finding exists.
        holds = None if disk.read_only and disk.mount not in self._written else disk.read_only
        summary = f"{disk.mount} ({disk.device}) became read-only after errors"
        component = _make_disk_component(disk)
        return judge_level(holds, now, (CHECK, "read_only"), component, summary, severity=Severity.ERROR)


def _compute_percent(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else 100 * part / whole


def _make_disk_component(disk: Disk) -> Component:
    return Component(ComponentKind.HOST, name=f"disk {disk.mount}")
