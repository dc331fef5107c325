"""The content of a post-mortem, before rendering. Times are UTC seconds, durations seconds."""

from __future__ import annotations

import msgspec

POSTMORTEM_VERSION = 1


class RootCause(msgspec.Struct, frozen=True, omit_defaults=True):
    """The most likely root cause, what it blames, and the basis."""

    what: str
    blame: str
    basis: str
    finding: str = ""  # its kind


class DurationSpan(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long one part took; None if unknown or not ended, and `note` says which."""

    name: str
    seconds: float | None
    note: str = ""


class JobHit(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One attempt of a job that the incident ended."""

    job: str
    attempt: int | None
    nodes: tuple[str, ...]
    how: str
    step: int | None = None
    checkpoint: str = ""
    stopped_at: float | None = None
    back_at: float | None = None


class ActionTaken(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One action and how it ended."""

    verb: str
    node: str
    state: str
    planned_at: float
    finished_at: float | None = None
    detail: str = ""


class CostItem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One loss. `gpu_hours` is None if unknown; `basis` says what is known of it and what is assumed."""

    what: str
    gpus: int
    seconds: float | None
    gpu_hours: float | None
    basis: str
    assumed: bool = False


class IncidentCost(msgspec.Struct, frozen=True):
    """What the incident cost: the sum of what is known, its items, and what the sum leaves out."""

    gpu_hours: float
    items: tuple[CostItem, ...]
    left_out: tuple[str, ...]


class ChartLine(msgspec.Struct, frozen=True):
    """One curve of a chart; a suspect one is highlighted."""

    label: str
    points: tuple[tuple[float, float], ...]
    suspect: bool = False


class EvidenceChart(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One value from `began` to `ended`, around the moment `mark_at`, which `mark` names.

    All charts show the same time.
    """

    title: str
    unit: str
    node: str
    began: float
    ended: float
    mark_at: float
    lines: tuple[ChartLine, ...]
    mark: str = "fault"
    left_out: int = 0  # omitted curves


class FindingRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One finding of the incident."""

    kind: str
    component: str
    severity: str
    summary: str
    first_seen: float
    count: int = 1
    cleared_by: str = ""
    injected: bool = False


class DecisionRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One decision and its reason."""

    at: float
    answer: str
    rule: str
    reason: str
    policy: str
    guards: tuple[str, ...] = ()


class TimelineEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One audit event, or an event that a node recorded."""

    at: float
    kind: str
    actor: str
    text: str


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a node's kernel log. `ours` distinguishes the kernel's own lines from a process's."""

    at: float
    text: str
    ours: bool = True


class RankRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A rank's last activity."""

    job: str
    attempt: int
    rank: int
    phase: str
    step: int
    at: float
    alive: bool
    step_seconds: float | None = None  # median of its last steps


class EvidenceRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One bundle of evidence: its node, time, size, and what it lacks."""

    order: str
    node: str
    from_at: float
    taken_at: float
    series: int
    kernel_lines: int
    ranks: int
    missing: tuple[str, ...] = ()


class PostMortem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One incident in full. `as_of` is when it was written: what is open then may have ended since."""

    version: int
    incident: str
    node: str
    title: str
    summary: str
    state: str
    outcome: str
    rule: str
    opened_at: float
    as_of: float
    cause: RootCause
    cost: IncidentCost
    closed_at: float | None = None
    injected: bool = False
    spans: tuple[DurationSpan, ...] = ()
    jobs: tuple[JobHit, ...] = ()
    actions: tuple[ActionTaken, ...] = ()
    follow_ups: tuple[str, ...] = ()
    findings: tuple[FindingRow, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    timeline_left_out: int = 0
    charts: tuple[EvidenceChart, ...] = ()
    kernel_lines: tuple[LogLine, ...] = ()
    ranks: tuple[RankRow, ...] = ()
    evidence: tuple[EvidenceRow, ...] = ()
