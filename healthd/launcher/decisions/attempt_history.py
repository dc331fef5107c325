"""A requeued job's history: what earlier launchers recorded of their attempts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from healthd.launcher.decisions.relaunch_policy import (
    REQUEUE_EXIT,
    AttemptHistory,
    AttemptOutcome,
    AttemptProgress,
    AttemptResult,
)


def rebuild_history(events: Iterable[Mapping[str, Any]]) -> AttemptHistory:
    """Return the consecutive crashes and the highest step from this job's events, oldest first.

    A job that was stopped for a reason other than a requeue starts over. The number of starts and the excluded nodes
    belong to one allocation. Incomplete events are skipped.
    """
    history = AttemptHistory()
    for event in events:
        try:
            if event["event"] == "attempt_ended":
                result = AttemptResult(AttemptOutcome(event["outcome"]), frozenset(), 0, "")
                history = history.after(
                    result, AttemptProgress(int(event["step"]), touched=event.get("advanced") is True)
                )
            elif event["event"] == "stopped" and event["code"] != REQUEUE_EXIT:
                history = AttemptHistory()
        except (ValueError, KeyError, TypeError, OverflowError):
            continue
    return AttemptHistory(crashes=history.crashes, step=history.step)


def count_failed_requeues(events: Iterable[Mapping[str, Any]]) -> int:
    """Return how often in a row, up to now, this job was requeued without an attempt in between.

    Slurm may end a launcher before it records that its request was granted, so the request counts.
    """
    count = 0
    for event in events:
        count = 0 if event["event"] == "attempt_started" else count + (event["event"] == "requeuing")
    return count
