"""Whose fault a crash is: the command's, if (nearly) all ranks end alike and early on nodes nobody finds fault with. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from healthd.launcher.decisions.relaunch_policy import (
    AttemptOutcome,
    AttemptResult,
    Fitness,
    NodeVerdict,
    RankEnd,
    RetryLimits,
    is_worse_fitness,
)
from healthd.trainer.exit_codes import ExitCode
from vocabulary.text.plurals import format_count

NEARLY_ALL = 0.9  # of the ranks: the last ones may find their peers gone before they fail themselves
SIGNAL_CODES = 128


def find_common_exit_code(ends: Sequence[RankEnd], share: float = NEARLY_ALL) -> int | None:
    """The exit code that (nearly) all ranks ended with by themselves; None if there is none, or it is no program's own.

    Codes from 128 on are a shell's words for a signal, and a signal may be a machine's doing. The guard's own ask for
    another start: a user error never does.
    """
    own = [end.code for end in ends if end.code is not None and not end.killed]
    code = max(set(own), key=own.count, default=0)
    users = 0 < code < SIGNAL_CODES and code not in set(ExitCode)
    return code if users and own.count(code) >= share * len(ends) else None


def may_be_user_error(result: AttemptResult, ends: Sequence[RankEnd], seconds: float, limits: RetryLimits) -> bool:
    """Whether it pays to ask for progress and the nodes' health: all ranks crashed alike and early."""
    early = result.outcome is AttemptOutcome.CRASHED and seconds < limits.user_error_seconds
    return early and find_common_exit_code(ends) is not None


def blame_user(result: AttemptResult, ends: Sequence[RankEnd]) -> AttemptResult:
    """The same attempt, once neither progress nor a fault of any node speaks for another try."""
    code = find_common_exit_code(ends)
    if code is None:
        return result
    same = sum(end.code == code for end in ends)
    why = f"{same} of {format_count(len(ends), 'rank')} exited with {code} soon after their start, no node shows a fault: the command is wrong"
    return result._replace(outcome=AttemptOutcome.USER_ERROR, code=code, why=why)


def list_doubtful_nodes(
    before: Sequence[NodeVerdict], after: Sequence[NodeVerdict], nodes: Collection[str]
) -> list[str]:
    """Those of `nodes` of which less good is known after than before. A node without a verdict is unknown."""
    first = {verdict.node: verdict.fitness for verdict in before}
    last = {verdict.node: verdict.fitness for verdict in after}
    unknown = Fitness.UNKNOWN
    return sorted(node for node in nodes if is_worse_fitness(last.get(node, unknown), first.get(node, unknown)))
