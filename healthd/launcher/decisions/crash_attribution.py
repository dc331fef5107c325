"""Attributes a crash to the command if (nearly) all ranks end alike and early on nodes without faults. Pure."""

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

NEARLY_ALL = 0.9  # of the ranks: the last ones may lose their peers before they fail themselves
SIGNAL_CODES = 128


def find_common_exit_code(ends: Sequence[RankEnd], share: float = NEARLY_ALL) -> int | None:
    """Return the exit code of (nearly) all ranks; None if there is none, or it is no program's own.

    Codes from 128 on are the shell's codes for signals, which a machine may cause. The guard's own codes request a
    restart: a user error never does.
    """
    own = [end.code for end in ends if end.code is not None and not end.killed]
    code = max(set(own), key=own.count, default=0)
    users = 0 < code < SIGNAL_CODES and code not in set(ExitCode)
    return code if users and own.count(code) >= share * len(ends) else None


def may_be_user_error(result: AttemptResult, ends: Sequence[RankEnd], seconds: float, limits: RetryLimits) -> bool:
    """Return whether all ranks crashed alike and early, so that progress and node health should be queried."""
    early = result.outcome is AttemptOutcome.CRASHED and seconds < limits.user_error_seconds
    return early and find_common_exit_code(ends) is not None


def blame_user(result: AttemptResult, ends: Sequence[RankEnd]) -> AttemptResult:
    """Attribute the attempt to the user, once neither progress nor a node fault justifies a retry."""
    code = find_common_exit_code(ends)
    if code is None:
        return result
    same = sum(end.code == code for end in ends)
    why = f"{same} of {format_count(len(ends), 'rank')} exited with {code} soon after their start, no node has a fault: the command is wrong"
    return result._replace(outcome=AttemptOutcome.USER_ERROR, code=code, why=why)


def list_doubtful_nodes(
    before: Sequence[NodeVerdict], after: Sequence[NodeVerdict], nodes: Collection[str]
) -> list[str]:
    """Return those of `nodes` whose verdict got worse. A node without a verdict is unknown."""
    first = {verdict.node: verdict.fitness for verdict in before}
    last = {verdict.node: verdict.fitness for verdict in after}
    unknown = Fitness.UNKNOWN
    return sorted(node for node in nodes if is_worse_fitness(last.get(node, unknown), first.get(node, unknown)))
