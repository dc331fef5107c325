"""Rechecks the nodes of an attempt that has not trained yet.

Minutes may pass between the gate's query and the ranks' first report. A fault in between reaches no rank: none was
running, and later ones wait in their first collective until it times out. Moving to other nodes at this point loses no
work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from healthd.launcher.decisions.relaunch_policy import NO_PROGRESS, AttemptProgress, NodeVerdict

RECHECKS = (1, 2, 4, 8, 16)  # multiples of the pause; slower starts are not rechecked after that
AGAIN_SHARE = 2 / 3  # of the pause: by then ranks that existed have obeyed any order


class StartupRecheck:
    """The recheck of one attempt. Call it at any rate; it queries the nodes only when due."""

    def __init__(
        self,
        unfit: Callable[[], Sequence[NodeVerdict]],
        progress: Callable[[], AttemptProgress],
        *,
        began: float,
        pause: float,
    ) -> None:
        """Prepare.

        Args:
            unfit: returns which of its nodes are unfit now; may take seconds.
            progress: returns its progress; may take seconds.
            began: start, monotonic seconds.
            pause: seconds until the first recheck; 0: never.
        """
        self._unfit = unfit
        self._progress = progress
        self._again_s = AGAIN_SHARE * pause
        self._rechecks = [began + times * pause for times in RECHECKS] if pause else []
        self._doubted = False
        self.found: Sequence[NodeVerdict] = ()

    def finds_unfit(self, now: float) -> bool:
        """Return whether a node is unfit in two rechecks in a row, before any rank finished a step; see `found`."""
        if not self._rechecks or now < self._rechecks[0]:
            return False
        del self._rechecks[0]
        unfit = self._unfit()
        if self._progress() != NO_PROGRESS:
            self._rechecks.clear()
        elif unfit and self._doubted:
            self.found = unfit
        elif unfit:
            self._rechecks.insert(0, now + self._again_s)
        self._doubted = bool(unfit)
        return bool(self.found)
