"""A playbook's steps, and how far a plan made of them is."""

from __future__ import annotations

import enum

import msgspec
from msgspec.structs import replace

from remediator.model.rule_conditions import Guards
from vocabulary.text.duration_format import format_period


class Mode(str, enum.Enum):
    """How far automation may go. Of several that apply, the most cautious counts."""

    OBSERVE = "observe"  # decide and write it down
    RECOMMEND = "recommend"  # and show it to people as what we would do
    APPROVE = "approve"  # do it once a person has agreed
    ACT = "act"

    @property
    def caution(self) -> int:
        """Order for comparisons: 0 is the boldest."""
        return _CAUTION[self]


_CAUTION = {Mode.ACT: 0, Mode.APPROVE: 1, Mode.RECOMMEND: 2, Mode.OBSERVE: 3}


class Verb(str, enum.Enum):
    """The words a playbook may use for a step."""

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
    """What `notify_trainer` may tell a job's ranks."""

    GRACEFUL = "graceful"  # save at one step and leave; go on without this node
    ABORT = "abort"  # leave now; go on without this node
    SAVE_AND_RELAUNCH = "save_and_relaunch"  # save at one step and leave; go on with every node
    SAVE_AND_STOP = "save_and_stop"  # save at one step and leave, for good
    REVERT = "revert"  # leave at one step, save nothing; go on from before the trouble, with every node


ONLY_TELLING = frozenset({Verb.COLLECT_EVIDENCE, Verb.TICKET, Verb.ALERT, Verb.WATCH})  # change no node and no job
PASSED_OVER = (ONLY_TELLING - {Verb.WATCH}) | {Verb.NOTIFY_TRAINER}  # a plan goes on although they failed for good
ISOLATING = frozenset({Verb.CORDON, Verb.DRAIN})


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A failed step is tried again so many times, each after a pause."""

    times: int
    after_s: float = 30.0


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step as the playbook wrote it. `on_failure` are the steps that take its place when it has failed for good."""

    verb: Verb
    how: str = ""
    timeout_s: float = 300.0
    retry: Retry | None = None
    on_failure: tuple[Step, ...] = ()
    mode: Mode = Mode.ACT
    guards: Guards = Guards()
    no_job_s: float | None = (
        None  # of a rule for nodes without a job: what has come since is neither cordoned nor evicted
    )

    def for_idle(self, no_job_s: float) -> Step:
        """The same, on failure too, for a node where there was no rank for so many seconds."""
        branch = tuple(each.for_idle(no_job_s) for each in self.on_failure)
        return replace(self, no_job_s=no_job_s, on_failure=branch)

    def __str__(self) -> str:
        if self.verb is Verb.WATCH:
            quiet_s = float(self.how or 0)
            return (
                f"watch: until it has been quiet for {format_period(quiet_s)}" if quiet_s else "watch: until it is over"
            )
        return f"{self.verb.value}: {self.how}" if self.how else self.verb.value

    @property
    def whole(self) -> tuple[Step, ...]:
        """This step and every step that may take its place."""
        return (self, *(each for branch in self.on_failure for each in branch.whole))


class StepState(str, enum.Enum):
    """How far one step of a plan is."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class StepRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step of one incident's plan with its progress; waiting is data: a state and a deadline.

    `then` are steps that follow in the same place; `key` tells apart the runs that came to this place one after another.
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
    """The id of one run of a step: what a person approves, and what its actions' ids begin with."""
    return f"{decision}.s{stage}.{index}{key}"
