"""The rows of the journal: nodes, incidents with their plans, decisions, actions.

Every record is frozen and replaced whole; ids are pure functions of their cause, so that doing the same thing again
after a crash names the same thing.
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
FOR_REPLACEMENT = "waits for replacement"  # the outcome of a plan whose node is out until people have put the part in
BUILT_IN = "built-in"  # in place of a policy's digest: no playbook can change this
CAUSE, SLOW_CAUSE = "common-cause", "slow-cause"  # the second holds nobody back
SILENCE = "silence"
EXPLAINING = frozenset({CAUSE, SLOW_CAUSE, SILENCE})  # say why a node fails; a job's own fault explains no broken node
BREAKER = "cluster:breaker"  # what the incident is about that is open as long as the breaker is
OURSELVES = "remediator"  # who acted, in the audit log, where nobody else did


class JobRef(msgspec.Struct, frozen=True, order=True, gc=False):
    """One attempt of a job: what a relaunch starts anew is somebody else's business than what it ended."""

    job: str
    attempt: int


class NodeReturn(msgspec.Struct, frozen=True, omit_defaults=True):
    """We brought a node back at `at`; a rule asked to take it out again at `failed_at`, if one did (UTC s)."""

    at: float
    failed_at: float | None = None


class HandsOff(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person keeps us off a node by their word, whatever the scheduler says; `until` in UTC s, None: until released."""

    actor: str
    why: str = ""
    until: float | None = None


class NodeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node: its state, why, whether *we* hold it out of service, and what runs there by its last word."""

    node: str
    state: NodeState = NodeState.HEALTHY
    since: float = 0.0
    cause: str = ""
    held: bool = False  # we want it drained
    isolated_at: float | None = None  # when we last took it out of service; kept after it came back
    hold_confirmed_at: float | None = None  # the scheduler said so
    jobs: tuple[JobRef, ...] = ()
    worlds: tuple[int, ...] = ()  # of these jobs, in their order: ranks on all nodes; 0 or missing where nobody told
    left_at: float | None = None  # when the last rank was gone, until that is so long ago that no rule asks for it
    architectures: tuple[Architecture, ...] = ()  # of its GPUs
    places: NodeLocation = NodeLocation()
    returns: tuple[NodeReturn, ...] = ()  # of the last weeks, oldest first
    hands_off: HandsOff | None = None
    on_trial: bool = False  # from the day it came back until it is healthy again, suspect or not


class IncidentState(str, enum.Enum):
    """OPEN: known, nothing planned. ACTING: a plan runs. WAITING: a human's turn. CLOSED: over."""

    OPEN = "open"
    ACTING = "acting"
    WAITING = "waiting"
    CLOSED = "closed"


class Answer(str, enum.Enum):
    """What a decision says."""

    ACT = "act"
    HOLD = "hold"  # a guard said no; asked again as time goes on
    APPROVE = "approve"  # will act as soon as a person agrees
    RECOMMEND = "recommend"  # would act, but the mode leaves it to people
    OBSERVE = "observe"  # would act, but the mode has us only look on
    WATCH = "watch"  # nothing to do, and why


class Incident(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Findings of one node with one most likely cause, and the plan against it.

    The stages of a plan run in turn, the steps of a stage side by side.
    """

    id: str
    node: str
    title: str
    opened_at: float
    state: IncidentState = IncidentState.OPEN
    findings: tuple[str, ...] = ()
    rule: str = ""
    answer: Answer | None = None  # of the last decision
    decisions: int = 0  # made so far; the last one's id follows from it
    policy: str = ""  # digest of the policy that the last decision rests on
    answered: int = 0  # findings known when it was made
    told: tuple[str, ...] = ()  # rules that only tell, and have
    approved: tuple[str, ...] = ()  # decisions and steps that a person agreed to
    plan: tuple[tuple[StepRun, ...], ...] = ()
    closed_at: float | None = None
    outcome: str = ""
    ended_by: str = ""  # whose word closed it (`ann resolved it`); empty: nobody's
    again: str = ""  # after whose word its fault came again, and how long
    injected: bool = False
    suspected: bool = False  # a rule has asked to take its node out
    wide: bool = False  # about what `members` share; `node` says what that is, rack:r12
    members: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()  # incidents that this one took in, by id
    fleet: int = 0  # of one about failed nodes: how many failed in the whole cluster meanwhile
    told_size: int = 0  # how many nodes people were last told of, in this incident or in the fleet, and when (UTC s)
    told_at: float = 0.0
    job_gone_at: float | None = None  # of one about a job: when no node had a rank of it any more
    acknowledged_by: str = ""
    acknowledged_at: float | None = None
    kept_open: bool = False  # a person opened it again, so a person closes it

    @property
    def decision(self) -> str:
        """Id of the decision in force, empty before the first."""
        return f"{self.id}.d{self.decisions}" if self.decisions else ""


class Considered(msgspec.Struct, frozen=True):
    """A rule that speaks of a finding of the incident, and why it is not the one that answers."""

    rule: str
    finding: str
    why: str


class Decision(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An answer with its reason, the rule it follows and what the guards said."""

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
        """Nothing more will happen."""
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
    began_at: float | None = None  # of an order: when its node first said that it carries it out
    finished_at: float | None = None
    order: Order | None = None
    reason: str = ""
    detail: str = ""
    data: Facts = {}
    untold: bool = False  # it has succeeded, and there was nobody to tell


class AuditEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that happened, for the append-only log."""

    at: float
    kind: str
    text: str
    actor: str = OURSELVES
    node: str = ""
    incident: str = ""
    injected: bool = False
    data: Facts = {}
