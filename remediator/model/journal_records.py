"""The rows of the journal: nodes, incidents with their plans, decisions, actions.

Every record is frozen and replaced as a whole; ids are pure functions of their cause, so that repeating something after
a crash gives the same id.
"""

from __future__ import annotations

import enum

import msgspec

from remediator.model.node_location import NodeLocation
from remediator.model.plan_steps import StepRun
from remediator.model.rule_conditions import NodeState
from vocabulary.hardware.gpu_architecture import Architecture
from vocabulary.order import Order

Facts = dict[str, str | int | float | bool]
FOR_REPLACEMENT = "waits for replacement"  # outcome of a plan: the node is out until the part is replaced
BUILT_IN = "built-in"  # in place of a policy's digest: no playbook can change this
CAUSE, SLOW_CAUSE = "common-cause", "slow-cause"  # the second does not block isolations
SILENCE = "silence"
EXPLAINING = frozenset({CAUSE, SLOW_CAUSE, SILENCE})  # explain why a node fails; a job's own fault does not
BREAKER = "cluster:breaker"  # subject of the incident that is open exactly while the breaker is
CONTROLLER_ACTOR = "remediator"  # actor in the audit log if there was no operator


class JobRef(msgspec.Struct, frozen=True, order=True, gc=False):
    """One attempt of a job: what was concluded about one attempt does not apply to a relaunch."""

    job: str
    attempt: int


class NodeReturn(msgspec.Struct, frozen=True, omit_defaults=True):
    """We returned a node to service at `at`; a rule asked to isolate it again at `failed_at`, if one did (UTC s)."""

    at: float
    failed_at: float | None = None


class OperatorHold(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operator hold, whatever the scheduler says; `until` in UTC s, None: until released."""

    actor: str
    why: str = ""
    until: float | None = None


class NodeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node: its state, why, whether *we* hold it out of service, and its jobs by its last report."""

    node: str
    state: NodeState = NodeState.HEALTHY
    since: float = 0.0
    cause: str = ""
    held: bool = False  # it should be drained
    isolated_at: float | None = None  # when we last isolated it; kept after its return
    hold_confirmed_at: float | None = None  # confirmed by the scheduler
    jobs: tuple[JobRef, ...] = ()
    worlds: tuple[int, ...] = ()  # of these jobs, in order: ranks on all nodes; 0 or missing if unknown
    left_at: float | None = None  # when the last rank disappeared, until that is too long ago for any rule
    architectures: tuple[Architecture, ...] = ()  # of its GPUs
    places: NodeLocation = NodeLocation()
    returns: tuple[NodeReturn, ...] = ()  # of the last weeks, oldest first
    hands_off: OperatorHold | None = None
    on_trial: bool = False  # from its return until it is healthy again, suspect or not


class IncidentState(str, enum.Enum):
    """OPEN: known, nothing planned. ACTING: a plan runs. WAITING: for an operator. CLOSED: ended."""

    OPEN = "open"
    ACTING = "acting"
    WAITING = "waiting"
    CLOSED = "closed"


class Answer(str, enum.Enum):
    """The answer of a decision."""

    ACT = "act"
    BLOCKED = "hold"  # a guard refused; evaluated again as time passes
    APPROVE = "approve"  # acts once an operator approves
    RECOMMEND = "recommend"  # would act, but the mode leaves it to operators
    OBSERVE = "observe"  # would act, but the mode only observes
    WATCH = "watch"  # nothing to do, and why


class Incident(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Findings of one node with one most likely cause, and the plan against it.

    The stages of a plan run in sequence, the steps of a stage side by side.
    """

    id: str
    node: str
    title: str
    opened_at: float
    state: IncidentState = IncidentState.OPEN
    findings: tuple[str, ...] = ()
    rule: str = ""
    answer: Answer | None = None  # of the last decision
    decisions: int = 0  # made so far; the last one's id is derived from it
    policy: str = ""  # digest of the policy of the last decision
    answered: int = 0  # findings known when it was made
    told: tuple[str, ...] = ()  # notifying rules that have run
    approved: tuple[str, ...] = ()  # approved decisions and steps
    plan: tuple[tuple[StepRun, ...], ...] = ()
    closed_at: float | None = None
    outcome: str = ""
    ended_by: str = ""  # who closed it (`ann resolved it`); empty: no operator
    again: str = ""  # after which settlement its fault came again, and how long
    injected: bool = False
    suspected: bool = False  # a rule has asked to isolate its node
    wide: bool = False  # about what `members` share, named in `node`: rack:r12
    members: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()  # ids of incidents that it absorbed
    fleet: int = 0  # of one about failed nodes: how many failed in the whole cluster meanwhile
    told_size: int = 0  # nodes in the last notification, in this incident or in the fleet, and its time (UTC s)
    told_at: float = 0.0
    job_gone_at: float | None = None  # of one about a job: since when no node has a rank of it
    acknowledged_by: str = ""
    acknowledged_at: float | None = None
    kept_open: bool = False  # reopened by an operator, so only an operator closes it

    @property
    def decision(self) -> str:
        """Id of the current decision, empty before the first."""
        return f"{self.id}.d{self.decisions}" if self.decisions else ""


class Considered(msgspec.Struct, frozen=True):
    """A rule that names a finding of the incident, and why it does not answer."""

    rule: str
    finding: str
    why: str


class Decision(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An answer with its reason, its rule and the guards' results."""

    id: str
    incident: str
    node: str
    at: float
    answer: Answer
    rule: str
    reason: str
    policy: str
    findings: tuple[str, ...]
    guards: tuple[str, ...] = ()
    considered: tuple[Considered, ...] = ()


class ActionState(str, enum.Enum):
    """PLANNED is written before anything happens; every other state is final."""

    PLANNED = "planned"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether nothing more will happen."""
        return self is not ActionState.PLANNED


class Action(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One durable, idempotent effect. `verb` is cordon, resume, alert, ticket, exec, or an order's kind."""

    id: str
    incident: str
    decision: str
    node: str
    verb: str
    planned_at: float
    deadline: float
    state: ActionState = ActionState.PLANNED
    attempts: int = 0
    not_before: float = 0.0
    began_at: float | None = None  # of an order: when its node first reported that it carries it out
    finished_at: float | None = None
    order: Order | None = None
    reason: str = ""
    detail: str = ""
    data: Facts = {}
    untold: bool = False  # it has succeeded, but there was no receiver


class AuditEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One event, for the append-only log."""

    at: float
    kind: str
    text: str
    actor: str = CONTROLLER_ACTOR
    node: str = ""
    incident: str = ""
    injected: bool = False
    data: Facts = {}
