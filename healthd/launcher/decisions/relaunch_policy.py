"""Decides the next step from how the ranks ended and what the nodes report. Pure; every result carries its reason."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import NamedTuple

from healthd.trainer.exit_codes import ExitCode
from vocabulary.text.plurals import format_count

REQUEUE_EXIT = 75  # EX_TEMPFAIL: try again later, elsewhere
ORDERED_CODES = (ExitCode.CONDEMNED, ExitCode.RELAUNCH, ExitCode.ABORTED)


class Fitness(str, enum.Enum):
    """Whether a node's daemon says it can take work. Unknown is not good, but no verdict against the node."""

    FIT = "fit"
    UNKNOWN = "unknown"
    UNFIT = "unfit"


_BADNESS = (Fitness.FIT, Fitness.UNKNOWN, Fitness.UNFIT)


def is_worse_fitness(one: Fitness, other: Fitness) -> bool:
    """Return whether `one` is worse than `other`."""
    return _BADNESS.index(one) > _BADNESS.index(other)


class GateMode(str, enum.Enum):
    """The requirement on a node before ranks start on it."""

    PREFER = "prefer"  # fit nodes first, silent ones if nothing better is available
    REQUIRE = "require"  # fit nodes only
    OFF = "off"  # no node is queried


class NodeVerdict(NamedTuple):
    """A node's answer at the gate."""

    node: str
    fitness: Fitness
    reason: str = ""


class RankEnd(NamedTuple):
    """How one rank ended. `code` as of a shell's child: negative for a signal, None if unknown (its node is lost)."""

    rank: int
    node: str
    code: int | None
    killed: bool = False  # by the launcher, because it stayed after its peers had left


class AttemptOutcome(str, enum.Enum):
    """The outcome of an attempt."""

    DONE = "done"
    ORDERED = "ordered"  # the ranks left because of an order
    LOST = "lost"  # a node vanished
    CRASHED = "crashed"
    USER_ERROR = "user_error"  # (nearly) all ranks crashed alike, early, on nodes without faults
    NEVER_AGAIN = "never_again"


class AttemptResult(NamedTuple):
    """The result of an attempt."""

    outcome: AttemptOutcome
    condemned: frozenset[str]  # nodes that must not be used again
    code: int  # the launcher's exit code if it stops here
    why: str


class NodeChoice(NamedTuple):
    """The nodes of an attempt, or None and why there are too few."""

    nodes: tuple[str, ...] | None
    why: str


class LaunchAction(str, enum.Enum):
    """The launcher's next step."""

    START = "start"
    REQUEUE = "requeue"
    STOP = "stop"


class RetryLimits(NamedTuple):
    """Retry limits. Crashes without progress count in a row; progress or an ordered leave resets the count.

    `user_error_seconds` after its start a crash is late: the user's code alone does not explain it; 0 is never early.
    """

    restarts: int = 20
    crashes: int = 3
    user_error_seconds: float = 60.0
    backoff_seconds: float = 1.0  # before the relaunch after the first crash; doubles with each
    backoff_most_seconds: float = 60.0


class AttemptProgress(NamedTuple):
    """An attempt's highest finished step (-1: not reported), and whether its progress file changed."""

    step: int = -1
    touched: bool = False


NO_PROGRESS = AttemptProgress()


class AttemptHistory(NamedTuple):
    """What happened so far."""

    restarts: int = 0
    crashes: int = 0
    excluded: frozenset[str] = frozenset()
    step: int = -1  # the highest that any attempt has finished

    def advanced(self, progress: AttemptProgress) -> bool:
        """Return whether an attempt got further than all before it."""
        return progress.touched or progress.step > self.step

    def after(self, result: AttemptResult, progress: AttemptProgress = NO_PROGRESS) -> AttemptHistory:
        """Return the history after one more attempt. A lost node counts neither for nor against the job."""
        crashes = 0
        if not self.advanced(progress) and result.outcome is not AttemptOutcome.ORDERED:
            crashes = self.crashes + (result.outcome in (AttemptOutcome.CRASHED, AttemptOutcome.USER_ERROR))
        excluded = self.excluded | result.condemned
        return AttemptHistory(self.restarts + 1, crashes, excluded, max(self.step, progress.step))

    def without(self, nodes: Collection[str]) -> AttemptHistory:
        """Return the history with these nodes excluded."""
        return self._replace(excluded=self.excluded | frozenset(nodes))


def judge_attempt(ends: Sequence[RankEnd]) -> AttemptResult:
    """Return an attempt's outcome from all ranks' ends, in any order; see `exit_verification` for an ordered leave."""
    codes = {end.code for end in ends}
    if codes == {ExitCode.DONE}:
        return AttemptResult(
            AttemptOutcome.DONE, frozenset(), 0, f"{format_count(len(ends), 'rank')} done, and none running"
        )
    if ExitCode.NEVER_AGAIN in codes:
        ranks = [end.rank for end in ends if end.code == ExitCode.NEVER_AGAIN]
        return AttemptResult(
            AttemptOutcome.NEVER_AGAIN,
            frozenset(),
            int(ExitCode.NEVER_AGAIN),
            f"not to be restarted, reports rank {_join_sorted(ranks)}",
        )
    if codes & set(ORDERED_CODES):
        condemned = {end.node for end in ends if end.code == ExitCode.CONDEMNED or end.killed}
        code = max(int(each) for each in codes & set(ORDERED_CODES) if each is not None)
        return AttemptResult(
            AttemptOutcome.ORDERED, frozenset(condemned), code, describe_ordered_leave(ends, condemned)
        )
    if None in codes:
        lost = {end.node for end in ends if end.code is None}
        return AttemptResult(AttemptOutcome.LOST, frozenset(lost), REQUEUE_EXIT, f"lost {_join_sorted(lost)}")
    failed = [end for end in ends if end.code]
    first = next((end for end in failed if not end.killed), failed[0])
    code = first.code or 1
    code = code if code > 0 else 128 - code
    return AttemptResult(
        AttemptOutcome.CRASHED, frozenset(), code, f"rank {first.rank} on {first.node} {_describe_exit_code(first)}"
    )


def combine_verdicts(gate: Sequence[NodeVerdict], preflight: Sequence[NodeVerdict], how: GateMode) -> list[NodeVerdict]:
    """Return one verdict per node: the worse of its daemon's and its preflight's.

    Unless the daemon's verdict is required, a passed preflight suffices for a node whose daemon is unknown.
    """
    worst = {verdict.node: verdict for verdict in gate}
    for verdict in preflight:
        known = worst.get(verdict.node)
        vouched = known is not None and known.fitness is Fitness.UNKNOWN and how is not GateMode.REQUIRE
        if known is None or vouched or is_worse_fitness(verdict.fitness, known.fitness):
            worst[verdict.node] = verdict
    return list(worst.values())


def choose_nodes(  # a pure decision takes all its inputs
    allocation: Sequence[str],
    wanted: int,
    excluded: Collection[str],
    verdicts: Sequence[NodeVerdict],
    gate: GateMode,
    *,
    least: int | None = None,
) -> NodeChoice:
    """Return the nodes to start on: fit before silent, else in the allocation's order.

    Args:
        allocation: all available nodes, in the scheduler's order.
        wanted: how many to use.
        excluded: nodes that already failed this job.
        verdicts: the gate's answers; a node without one is unknown.
        gate: the requirement.
        least: minimum to start with if there are not enough; None: `wanted`.
    """
    fitness = {verdict.node: verdict.fitness for verdict in verdicts}
    if gate is GateMode.OFF:
        fitness = dict.fromkeys(allocation, Fitness.FIT)
    usable = (Fitness.FIT,) if gate is GateMode.REQUIRE else (Fitness.FIT, Fitness.UNKNOWN)
    ranked = [
        node
        for wish in usable
        for node in allocation
        if node not in excluded and fitness.get(node, Fitness.UNKNOWN) is wish
    ]
    enough = wanted if least is None else min(least, wanted)
    if len(ranked) < enough:
        refused = [node for node in allocation if node not in ranked]
        return NodeChoice(
            None,
            f"{format_count(enough, 'node')} needed, {len(ranked)} usable of {len(allocation)}; not {_join_sorted(refused)}",
        )
    chosen = set(ranked[:wanted])
    nodes = tuple(node for node in allocation if node in chosen)
    silent = [node for node in nodes if fitness.get(node, Fitness.UNKNOWN) is not Fitness.FIT]
    fewer = f"{len(nodes)} instead of {wanted} nodes; " if len(nodes) < wanted else ""
    return NodeChoice(nodes, fewer + (f"no report from {_join_sorted(silent)}" if silent else "all fit"))


def decide_next_action(result: AttemptResult, history: AttemptHistory, limits: RetryLimits) -> tuple[LaunchAction, str]:
    """Return what to do after an attempt; `history` already includes it."""
    if result.outcome in (AttemptOutcome.DONE, AttemptOutcome.NEVER_AGAIN, AttemptOutcome.USER_ERROR):
        return LaunchAction.STOP, result.why
    if history.crashes >= limits.crashes:
        return (
            LaunchAction.STOP,
            f"{format_count(history.crashes, 'crash', 'crashes')} in a row without progress: {result.why}",
        )
    if history.restarts > limits.restarts:
        return LaunchAction.STOP, f"all {limits.restarts} restarts are used up: {result.why}"
    return LaunchAction.START, result.why


def compute_backoff(history: AttemptHistory, limits: RetryLimits) -> float:
    """Return the seconds before the next attempt: 0 after an ordered leave or progress, doubling with each crash."""
    if history.crashes == 0:
        return 0.0
    doublings = min(history.crashes - 1, 32)  # a float holds that many, and no cap is so high
    return min(limits.backoff_most_seconds, limits.backoff_seconds * 2.0**doublings)


def describe_ordered_leave(ends: Sequence[RankEnd], condemned: Collection[str]) -> str:
    """Describe an ordered leave for people."""
    aborted = sum(end.code == ExitCode.ABORTED for end in ends)
    killed = sorted({end.node for end in ends if end.killed})
    parts = [f"{format_count(aborted, 'rank')} aborted" if aborted else "all saved and left"]
    if killed:
        parts.append(f"had to kill what stayed on {_join_sorted(killed)}")
    if condemned:
        parts.append(f"without {_join_sorted(condemned)} from now on")
    return "; ".join(parts)


def _describe_exit_code(end: RankEnd) -> str:
    if end.killed:
        return "stayed after its peers and was killed"
    if end.code is not None and end.code < 0:
        return f"was killed by signal {-end.code}"
    return f"exited with {end.code}"


def _join_sorted(items: Collection[object]) -> str:
    return ", ".join(sorted(map(str, items))) or "none"
