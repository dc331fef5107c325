"""The main loop's state for the rest of the process: one frozen record, replaced as a whole in every round."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from healthd.findings.event_counters import EventCount
from healthd.findings.gpu_state import GpuState
from healthd.preflight_reports.preflight_history import PreflightSummary
from healthd.samples.nvml import Inventory
from healthd.samples.source import SourceReading
from healthd.storage.database_writer import LastCommit
from healthd.storage.history_marker import Condemnation
from vocabulary.daemon_socket import STALE_S
from vocabulary.finding import Finding
from vocabulary.health import Health, Verdict, health_of
from vocabulary.messages.wire import Gpu, RankStatus, Versions

REASONS_MAX = 20


class Counters(msgspec.Struct, frozen=True):
    """Counts since this process started."""

    kernel_records: int = 0
    sweeps: int = 0
    sweep_errors: int = 0
    nvml_starts: int = 0
    nvml_hangs: int = 0
    changes_dropped: int = 0
    changes_rejected: int = 0
    xid_events: int = 0
    xid_events_alone: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One instant of this node, on both clocks. `silent` names the sources that should report and do not.

    `findings` are durable; while the disk fails or hangs, `unwritten` names those that are not. They include every
    change up to the number `newest_change`. `age_s` is the age of this record when it was read.
    """

    node: str
    boot_id: str
    at: float
    monotonic: float = 0.0
    findings: tuple[Finding, ...] = ()
    condemned: Condemnation | None = None
    silent: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    versions: Versions = Versions()
    ranks: tuple[RankStatus, ...] = ()
    states: tuple[GpuState, ...] = ()
    inventory: Inventory | None = None
    sources: dict[str, SourceReading] = {}
    events: tuple[EventCount, ...] = ()
    sweep_seconds: float | None = None
    counters: Counters = Counters()
    abandoned: int = 0
    preflights: PreflightSummary = PreflightSummary()
    newest_change: int = 0
    unwritten: frozenset[str] = frozenset()
    last_commit: LastCommit | None = None
    reported_at: float | None = None
    age_s: float = 0.0

    def aged(self, monotonic: float) -> Status:
        """Return the record as seen at `monotonic`. A source that is too old counts as silent."""
        age_s = max(0.0, monotonic - self.monotonic)
        stale = (f"healthd's main loop for {age_s:.0f} s",) if age_s > STALE_S else ()
        return replace(self, age_s=age_s, silent=(*self.silent, *stale))

    @property
    def health(self) -> Health:
        """Return one health state from the findings and the silent sources."""
        return health_of(self.findings, sources_known=not self.silent)

    def verdict(self, only: Sequence[str] = (), ignore: Sequence[str] = ()) -> Verdict:
        """Return the node's self-reported verdict, with its reasons, the worst first.

        Counts the findings whose ``check/code`` matches one of the patterns `only` (without any: all) and none of
        `ignore`.
        """
        findings = [
            f for f in self.findings if (not only or _matches_pattern(f, only)) and not _matches_pattern(f, ignore)
        ]
        health = health_of(findings, sources_known=not self.silent)
        worst_first = sorted(findings, key=lambda finding: -finding.severity.rank)
        reasons = [
            f"{f.kind} ({f.severity.value}{', injected' if f.injected else ''}): {f.summary}" for f in worst_first
        ]
        if self.condemned is not None:
            reasons.insert(0, f"condemned by order {self.condemned.order}: {self.condemned.reason}")
        reasons += [f"no report from {source}" for source in self.silent]
        fit = health in (Health.HEALTHY, Health.DEGRADED) and self.condemned is None
        return Verdict(
            node=self.node,
            health=health,
            fit=fit,
            condemned=self.condemned is not None,
            reasons=tuple(reasons[:REASONS_MAX]),
            at=self.at,
            age_s=round(self.age_s, 3),
        )


def _matches_pattern(finding: Finding, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(finding.kind, p if "/" in p else f"{p}/*") for p in patterns)
