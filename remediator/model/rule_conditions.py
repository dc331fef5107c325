"""The conditions of playbook rules: `match` and `guards` as records. Also the layout in the file.

Patterns are shell patterns over ``check/code``: ``xid/79``, ``row_remap/*``. Empty lists mean: any.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from vocabulary.finding import Severity
from vocabulary.hardware.gpu_architecture import Architecture
from vocabulary.identity import ComponentKind
from vocabulary.text.duration_format import format_period

DAY_S = 86400.0
PRESENT_MAX_S = 3600.0  # how long an ended finding is kept as such, and not only counted
WINDOW_MAX_S = 30 * DAY_S  # the longest window of a rule, and so how long history is kept

Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=200, description="Shell pattern over check/code.")]
Window = Annotated[float, msgspec.Meta(gt=0, le=WINDOW_MAX_S, description="Seconds, at most 30 days.")]
NoJob = Annotated[
    float,
    msgspec.Meta(ge=0, le=PRESENT_MAX_S, description="With job none: seconds without a rank, at most one hour."),
]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Scope(str, enum.Enum):
    """Where occurrences are counted, relative to the finding."""

    COMPONENT = "component"
    NODE = "node"
    JOB = "job"  # every node of a job that ran on this node when the finding was seen
    CLUSTER = "cluster"


class About(str, enum.Enum):
    """The subject of the incident that a rule answers."""

    NODE = "node"
    JOB = "job"  # one incident about the job, however many of its nodes show the finding


class Distinct(str, enum.Enum):
    """What is counted."""

    EVENTS = "events"
    COMPONENTS = "components"
    JOBS = "jobs"  # jobs on several nodes that had it on this one alone: others of the same program are fine
    ALL_JOBS = "all_jobs"  # also jobs on one node, which cannot distinguish program and node
    NODES = "nodes"
    INCIDENTS = "incidents"  # of actions and rules


class CountCondition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How often something happened within a window.

    `of` names findings, started actions (``action/reset_gpu``), failed actions (``failed/preflight``) or rules that
    acted (``rule/gpu-lost``); by default, the finding's own kind. Actions and rules of the same incident do not count,
    nor does what an injected fault caused, unless the finding is injected itself.
    """

    within_s: Window
    of: tuple[Pattern, ...] = ()
    scope: Scope = Scope.NODE
    distinct: Distinct = Distinct.EVENTS
    at_least: Count | None = None
    at_most: Count | None = None

    def __post_init__(self) -> None:
        if self.at_least is None and self.at_most is None:
            raise ValueError("needs 'at_least' or 'at_most'")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError("'at_least' is above 'at_most': the condition can never match")

    def accepts(self, count: int) -> bool:
        """Return whether `count` is within both bounds."""
        return (self.at_least is None or count >= self.at_least) and (self.at_most is None or count <= self.at_most)

    def __str__(self) -> str:
        what = " or ".join(self.of) or "the same"
        bounds = [
            f"{word} {n}" for word, n in (("at least", self.at_least), ("at most", self.at_most)) if n is not None
        ]
        counted = "" if self.distinct is Distinct.EVENTS else f" distinct {self.distinct.value}"
        return f"{' and '.join(bounds)}{counted} of {what} per {self.scope.value} in {format_period(self.within_s)}"


class CoOccurrence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What else is known of the same node: active now, or last seen within `within_s`."""

    all: tuple[Pattern, ...] = ()
    any: tuple[Pattern, ...] = ()
    none: tuple[Pattern, ...] = ()
    within_s: Annotated[float, msgspec.Meta(gt=0, le=PRESENT_MAX_S, description="Seconds, at most one hour.")] = 60.0


class JobScope(str, enum.Enum):
    """Whether a job has ranks on the node."""

    RUNNING = "running"
    NONE = "none"


class NodeState(str, enum.Enum):
    """A node's lifecycle state. `node_lifecycle.py` has the legal transitions."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    RESETTING = "resetting"
    REPLACING = "replacing"
    TESTING = "testing"
    PROBATION = "probation"
    OPERATOR_HELD = "operator-held"
    RETIRED = "retired"


OPERATOR_OWNED_STATES = frozenset({NodeState.OPERATOR_HELD, NodeState.RETIRED})  # no plan changes such a node


class Match(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When a rule answers a finding. Everything given must hold."""

    findings: tuple[Pattern, ...] = ()
    severities: tuple[Severity, ...] = ()
    components: tuple[ComponentKind, ...] = ()
    architectures: tuple[Architecture, ...] = ()
    evidence: dict[str, tuple[str | int, ...]] = {}  # of the finding: name → the values that match, as text
    job: JobScope | None = None
    no_job_s: NoJob = 300.0
    node_states: tuple[NodeState, ...] = ()
    together: CoOccurrence | None = None
    history: tuple[CountCondition, ...] = ()

    @property
    def unconditional(self) -> bool:
        """Whether the finding alone decides, without its node's present or past."""
        situation = self.architectures or self.evidence or self.job or self.node_states or self.together
        return not situation and not self.history


class Guards(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What must hold before a rule, or one of its steps, may act.

    Unlike `match`, a guard lets no other rule answer: it waits.
    """

    idle: bool = False  # no job has ranks on the node
    drained: bool = False  # the scheduler reports no work left on it
    spares: Count = 0  # so many other nodes are healthy, not held and without a job
    history: tuple[CountCondition, ...] = ()
