"""What a launcher knows of the attempts that others made before it for the same job: it was queued again. Pure."""

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
    """The crashes in a row and the highest step, as the events of this job tell them, oldest first.

    A job that was stopped for another reason than to be queued again begins anew. How often it was started, and which
    nodes it must not use, is of one allocation. Events without the members they should have are passed over.
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
    """How often in a row, up to now, this job was queued again without an attempt between.

    Slurm may end a launcher before it records that its request was granted, so the request counts.
    """
    count = 0
    for event in events:
        count = 0 if event["event"] == "attempt_started" else count + (event["event"] == "requeuing")
    return count
