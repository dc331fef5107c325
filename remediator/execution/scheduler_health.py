"""Whether the scheduler answers, in words for the status page and the log."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from remediator.model.scheduler_hold import SchedulerNodeState
from vocabulary.text.plurals import format_count

log = logging.getLogger(__name__)
OK = "ok"
QUIET_S = 60.0  # minimum between two log lines: a flapping scheduler must not fill the log


def scheduler_health_text(holds: Mapping[str, SchedulerNodeState]) -> str:
    """Return ``ok``, or the number of nodes without an answer and why: the first reason by node name."""
    untold = {name: hold.reason for name, hold in holds.items() if hold.schedulable is None}
    if not untold:
        return OK
    first, *others = dict.fromkeys(untold[name] for name in sorted(untold))
    more = f" (and {len(others)} other reason{'s' * (len(others) > 1)})" if others else ""
    return f"gives no answer for {len(untold)} of {format_count(len(holds), 'node')}: {first}{more}"


class SchedulerHealthLog:
    """Logs changes of the scheduler's health."""

    def __init__(self) -> None:
        self._word = OK
        self._at = -math.inf

    def log(self, word: str, now: float) -> None:
        """Log `word` if it has changed. `now`: monotonic seconds; a change that comes too soon waits for the next call."""
        if word == self._word or now - self._at < QUIET_S:
            return
        if word == OK:
            log.info("the scheduler answers for every node again")
        else:
            log.warning("the scheduler %s", word)
        self._word, self._at = word, now
