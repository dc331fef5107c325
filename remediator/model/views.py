"""API views for clients: flat and self-contained, no join needed. Times are UTC seconds."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from remediator.model.credentials import Role
from remediator.model.journal_records import Considered, OperatorHold
from vocabulary.finding import Finding
from vocabulary.messages.wire import Gpu, RankStatus, Versions

MONTH_S = 31 * 86400.0
MOMENT_MAX = 253_402_300_799.0  # the end of the year 9999

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=100 * 365 * 86400.0)]


class NodeView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node as the controller sees it now. `health` is self-reported, or unknown when it is silent."""

    node: str
    state: str
    health: str
    since: float
    why: str
    last_seen: float | None
    incident: str = ""
    held_by: str = ""
    jobs: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    ranks: tuple[RankStatus, ...] = ()
    findings: tuple[Finding, ...] = ()
    hands_off: OperatorHold | None = None  # the operator hold
    versions: Versions = Versions()


class MissingOutcome(str, enum.Enum):
    """What a finished action or step still lacks."""

    NOTHING = ""
    TOLD_NOBODY = "told nobody"
    PART = "waits for the part"

    @property
    def text(self) -> str:
        """What pages and commands show; empty if nothing is missing."""
        return {MissingOutcome.TOLD_NOBODY: "not delivered", MissingOutcome.PART: "waiting for a replacement part"}.get(
            self, ""
        )


class ActionView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One action and its outcome; `why` names its incident and rule, or the operator.

    `state` is running from when its node reports that it carries the order out (`began_at`), until it ends. `on_stop`,
    of one that has not ended: what an operator's mode observe or recommend does to it, as text.
    """

    id: str
    verb: str
    node: str
    state: str
    planned_at: float
    deadline: float
    finished_at: float | None = None
    attempts: int = 0
    detail: str = ""
    data: dict[str, str | int | float | bool] = {}
    incident: str = ""
    why: str = ""
    on_stop: str = ""
    lacks: MissingOutcome = MissingOutcome.NOTHING
    began_at: float | None = None


class StepView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of the plan as text, e.g. ``preflight: gate``."""

    text: str
    state: str
    detail: str = ""
    lacks: MissingOutcome = MissingOutcome.NOTHING


class DecisionView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was decided, by which rule of which policy, and why; also when the answer is 'nothing'."""

    id: str
    at: float
    answer: str
    rule: str
    reason: str
    policy: str
    guards: tuple[str, ...] = ()
    considered: tuple[Considered, ...] = ()


class PendingApproval(msgspec.Struct, frozen=True):
    """Something that awaits an operator's approval."""

    id: str
    text: str


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /v1/incidents/{id}/approve`: the id to approve."""

    what: str


class CommandText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator's text about an incident or a node; required for a note and for retiring a node, otherwise a reason."""

    text: Annotated[str, msgspec.Meta(max_length=2000)] = ""


class UncordonRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /v1/nodes/{node}/uncordon`: why; with `force` also while a reset, a reboot or a test of ours may run there."""

    text: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    force: bool = False


class HoldRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /v1/nodes/{node}/hold`: why, and until when (UTC s); without an end, until it is released."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    until: Annotated[float, msgspec.Meta(gt=0, le=MOMENT_MAX)] | None = None


class NoteView(msgspec.Struct, frozen=True):
    """An operator's note."""

    at: float
    actor: str
    text: str


class TokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /v1/tokens`. `uses` and `replaces` are for join secrets; `name` is a pattern there, like `gpu-*`.

    Without `expires_s` a join secret expires after a day, and any other token never.
    """

    role: Role
    name: Name
    expires_s: Positive | None = None
    uses: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    replaces: bool = False


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /v1/tokens/rotate`: the name's old tokens end after `overlap_s`.

    The new one expires after `expires_s`; by default when the longest of them would have.
    """

    role: Role
    name: Name
    overlap_s: Annotated[float, msgspec.Meta(ge=0, le=MONTH_S)] = 86400.0
    expires_s: Positive | None = None


class SettlementView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operator's settlement of an incident's active findings, and its latest time (UTC s).

    A fatal fault that is seen again after `until` gets a new decision; None: the settlement counts while the operator holds
    the node, or until nothing fatal is left.
    """

    said: str
    at: float
    until: float | None = None


class IncidentView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One incident. In listings `findings`, `decisions`, `actions`, `proposed` and `word` are left empty.

    `proposed` are steps that await approval, or that the mode or a guard blocks: stages in sequence, the steps of one
    side by side. `injected`: it is a drill; `partly_injected`: it is none, but some of its findings are test faults.
    `waits_for_part`: its node is out until operators have replaced the part.
    """

    id: str
    node: str
    state: str
    title: str
    opened_at: float
    closed_at: float | None = None
    outcome: str = ""
    injected: bool = False
    acknowledged_by: str = ""
    acknowledged_at: float | None = None
    awaits: tuple[PendingApproval, ...] = ()
    notes: tuple[NoteView, ...] = ()
    steps: tuple[StepView, ...] = ()
    findings: tuple[Finding, ...] = ()
    decisions: tuple[DecisionView, ...] = ()
    actions: tuple[ActionView, ...] = ()
    proposed: tuple[tuple[str, ...], ...] = ()
    waits_for_part: bool = False
    partly_injected: bool = False
    word: SettlementView | None = None


class EventView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One audit event: what happened, to what, because of what, and who caused it."""

    seq: int
    at: float
    kind: str
    actor: str
    text: str
    node: str = ""
    incident: str = ""
    injected: bool = False
    data: dict[str, str | int | float | bool] = {}


class StatusView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cluster's status. `blocked` lists, as text, everything that blocks automation.

    `mode_by` says who set the mode, since when and why; empty: the configuration. `breaker` is empty while it is
    closed.
    """

    cluster: str
    version: str
    mode: str
    epoch: int
    policy: str
    at: float
    nodes_total: int
    nodes_by_state: dict[str, int]
    nodes_by_health: dict[str, int]
    isolated: int
    isolated_max: int
    incidents_open: int
    actions_open: int
    scheduler: str
    blocked: tuple[str, ...] = ()
    mode_by: str = ""
    leader: str = ""
    breaker: str = ""


class NodeList(msgspec.Struct, frozen=True):
    """`GET /v1/nodes`, by name."""

    nodes: tuple[NodeView, ...]


class IncidentList(msgspec.Struct, frozen=True):
    """`GET /v1/incidents`, newest first."""

    incidents: tuple[IncidentView, ...]


class EventList(msgspec.Struct, frozen=True):
    """`GET /v1/events`, oldest first."""

    events: tuple[EventView, ...]
