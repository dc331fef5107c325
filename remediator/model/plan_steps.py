"""The steps of a playbook, and the progress of a plan."""

from __future__ import annotations

import enum

import msgspec
from msgspec.structs import replace

from remediator.model.rule_conditions import Guards
from vocabulary.text.duration_format import format_period


class Mode(str, enum.Enum):
    """How far automation may go. Of several that apply, the most cautious counts."""

    OBSERVE = "observe"  # decide and record
    RECOMMEND = "recommend"  # and show operators what it would do
    APPROVE = "approve"  # act once an operator has approved
    ACT = "act"

    @property
    def caution(self) -> int:
        """Order for comparisons: 0 is the boldest."""
        return _CAUTION[self]


_CAUTION = {Mode.ACT: 0, Mode.APPROVE: 1, Mode.RECOMMEND: 2, Mode.OBSERVE: 3}


class Verb(str, enum.Enum):
    """The verbs of a playbook's steps."""

    CORDON = "cordon"  # no new work
    DRAIN = "drain"  # no new work, and running work has left
    NOTIFY_TRAINER = "notify_trainer"
    COLLECT_EVIDENCE = "collect_evidence"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    PREFLIGHT = "preflight"
    RETURN_TO_SERVICE = "return_to_service"
    REPLACE = "replace"
    TICKET = "ticket"
    ALERT = "alert"
    WATCH = "watch"
    EXEC = "exec"


class TrainerNotice(str, enum.Enum):
    """The orders that `notify_trainer` may send to a job's ranks."""

    GRACEFUL = "graceful"  # save at one step and leave; continue without this node
    ABORT = "abort"  # leave now; continue without this node
    SAVE_AND_RELAUNCH = "save_and_relaunch"  # save at one step and leave; continue with every node
    SAVE_AND_STOP = "save_and_stop"  # save at one step and leave, for good
    REVERT = "revert"  # leave at one step without saving; continue from before the trouble, with every node


NON_DISRUPTIVE = frozenset({Verb.COLLECT_EVIDENCE, Verb.TICKET, Verb.ALERT, Verb.WATCH})  # change no node and no job
# A plan continues although these failed for good.
OPTIONAL_STEPS = (NON_DISRUPTIVE - {Verb.WATCH}) | {Verb.NOTIFY_TRAINER}
ISOLATING = frozenset({Verb.CORDON, Verb.DRAIN})


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often a failed step is retried, each time after a pause."""

    times: int
    after_s: float = 30.0


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step as in the playbook. `on_failure` are the steps that replace it when it has failed for good."""

    verb: Verb
    how: str = ""
    timeout_s: float = 300.0
    retry: Retry | None = None
    on_failure: tuple[Step, ...] = ()
    mode: Mode = Mode.ACT
    guards: Guards = Guards()
    no_job_s: float | None = None  # of a rule for nodes without a job: newer work is neither cordoned nor evicted

    def for_idle(self, no_job_s: float) -> Step:
        """Return the same, including failure branches, for a node without a rank for so many seconds."""
        branch = tuple(each.for_idle(no_job_s) for each in self.on_failure)
        return replace(self, no_job_s=no_job_s, on_failure=branch)

    def __str__(self) -> str:
        if self.verb is Verb.WATCH:
            quiet_s = float(self.how or 0)
            return (
                f"watch: until it has been quiet for {format_period(quiet_s)}" if quiet_s else "watch: until it clears"
            )
        return f"{self.verb.value}: {self.how}" if self.how else self.verb.value

    @property
    def whole(self) -> tuple[Step, ...]:
        """Yield this step and every step that may replace it."""
        return (self, *(each for branch in self.on_failure for each in branch.whole))


class StepState(str, enum.Enum):
    """The progress of one step of a plan."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class StepRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step of one incident's plan with its progress; waiting is data: a state and a deadline.

    `then` are steps that follow in the same place; `key` distinguishes consecutive runs in this place.
    """

    step: Step
    state: StepState = StepState.PENDING
    deadline: float | None = None
    not_before: float = 0.0
    actions: tuple[str, ...] = ()
    detail: str = ""
    then: tuple[Step, ...] = ()
    key: str = ""
    attempt: int = 0


def step_key(decision: str, stage: int, index: int, key: str) -> str:
    """Return the id of one run of a step: operators approve it, and its actions' ids begin with it."""
    return f"{decision}.s{stage}.{index}{key}"
