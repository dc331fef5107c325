"""Verifies that an order explains why the ranks exited as if ordered to. Pure.

Any program may end with 90, 91 or 92. Without verification, a command that always does would be restarted forever, at
once, or condemn one node after the other. The evidence is in the ranks' pages, where each rank records the order it
obeyed.
"""

from __future__ import annotations

from collections.abc import Sequence

from healthd.launcher.decisions.relaunch_policy import (
    ORDERED_CODES,
    AttemptResult,
    RankEnd,
    describe_ordered_leave,
    judge_attempt,
)
from healthd.launcher.decisions.relaunch_policy import AttemptOutcome as Came
from healthd.launcher.rank_pages import RankPage
from healthd.trainer.beacons.beacon_page import OrderOutcome
from healthd.trainer.exit_codes import ExitCode

OBEYED = (OrderOutcome.SAVED, OrderOutcome.LEFT, OrderOutcome.ABORTED)  # not FAILED: a failed save would fail again


def verify_ordered_leave(
    result: AttemptResult, ends: Sequence[RankEnd], pages: Sequence[RankPage], *, asked: bool = False
) -> AttemptResult:
    """Return the attempt; without evidence an ordered leave becomes a crash, or the loss of a node.

    Args:
        result: the outcome by the ranks' exit codes.
        ends: those codes.
        pages: what the ranks left; those of silent nodes are missing.
        asked: the launcher itself requested the ranks to leave.
    """
    if result.outcome is not Came.ORDERED:
        return result
    obeyed = [page for page in pages if page.outcome in OBEYED]
    if not obeyed and not asked:
        return _treat_as_crash(ends)
    told = {page.node for page in pages}
    condemned = {page.node for page in obeyed if page.condemned}
    condemned |= {end.node for end in ends if end.killed or (end.code == ExitCode.CONDEMNED and end.node not in told)}
    return result._replace(condemned=frozenset(condemned), why=describe_ordered_leave(ends, condemned))


def _treat_as_crash(ends: Sequence[RankEnd]) -> AttemptResult:
    """Treat those codes as ordinary ones.

    The launcher must not end with one of them, or its caller would restart the job.
    """
    result = judge_attempt([end._replace(code=1) if end.code in ORDERED_CODES else end for end in ends])
    if result.outcome is not Came.CRASHED:
        return result
    first = next(end for end in ends if end.code in ORDERED_CODES)
    return result._replace(why=f"rank {first.rank} on {first.node} exited with {first.code}, but obeyed no order")
