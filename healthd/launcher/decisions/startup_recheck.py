"""A second look at the nodes of an attempt that has not trained yet.

Between the gate's question and the ranks' first word minutes may pass. Of a fault that strikes in between nobody is told: no rank
was there, and the one that comes waits in its first collective until that gives up. Nothing is lost yet by going elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from healthd.launcher.decisions.relaunch_policy import NO_PROGRESS, AttemptProgress, NodeVerdict

LOOKS = (1, 2, 4, 8, 16)  # after so many times the pause; a job that takes longer to its first step is on its own
AGAIN_SHARE = 2 / 3  # of the pause: what ranks that were there have been told, they have obeyed by then


class StartupRecheck:
    """One attempt's. Asked all the time, it asks the nodes only when it is time."""

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
            unfit: which of its nodes are unfit now; may take seconds.
            progress: how far it has come; the same.
            began: when, monotonic seconds.
            pause: until the first look, s; 0: never look.
        """
        self._unfit = unfit
        self._progress = progress
        self._again_s = AGAIN_SHARE * pause
        self._looks = [began + times * pause for times in LOOKS] if pause else []
        self._doubted = False
        self.found: Sequence[NodeVerdict] = ()

    def finds_unfit(self, now: float) -> bool:
        """Whether a node is unfit, and one was at the look before, while no rank has finished a step. `found` says which."""
        if not self._looks or now < self._looks[0]:
            return False
        del self._looks[0]
        unfit = self._unfit()
        if self._progress() != NO_PROGRESS:
            self._looks.clear()
        elif unfit and self._doubted:
            self.found = unfit
        elif unfit:
            self._looks.insert(0, now + self._again_s)
        self._doubted = bool(unfit)
        return bool(self.found)
