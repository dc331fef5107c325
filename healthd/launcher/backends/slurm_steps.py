"""The srun steps of a run whose nodes may return: the one that it began with, and one more for each return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from healthd.launcher.decisions.relaunch_policy import RankEnd


class RankStep(Protocol):
    """What this needs of a `SlurmRun`; its tasks count from 0."""

    def ended(self) -> Sequence[RankEnd]:
        """Tasks that have ended."""

    def over(self) -> bool:
        """Whether all have."""

    def terminate(self) -> None:
        """SIGTERM to all."""

    def kill(self) -> None:
        """SIGKILL to all."""

    def kill_one(self, task: int) -> None:
        """SIGKILL to one."""


class SlurmSteps:
    """All processes of a run, by the number of their start."""

    def __init__(self, first: RankStep, start: Callable[[str, int, Sequence[int]], RankStep]) -> None:
        """Begin.

        Args:
            first: the step that the run begins with.
            start: starts one more, on a node, for tasks from a number on, in these places of the node.
        """
        self._steps = [(0, first)]
        self._start = start

    def start_more(self, node: str, first: int, local_ranks: Sequence[int]) -> None:
        """One more step. Raises OSError."""
        self._steps.append((first, self._start(node, first, local_ranks)))

    def ended(self) -> Sequence[RankEnd]:
        """Those of all steps that have ended."""
        return [end._replace(rank=end.rank + first) for first, step in self._steps for end in step.ended()]

    def over(self) -> bool:
        """Whether all have."""
        return all(step.over() for _, step in self._steps)

    def terminate(self) -> None:
        """SIGTERM to all."""
        for _, step in self._steps:
            step.terminate()

    def kill(self) -> None:
        """SIGKILL to all."""
        for _, step in self._steps:
            step.kill()

    def kill_one(self, task: int) -> None:
        """SIGKILL to one."""
        first, step = next(each for each in reversed(self._steps) if each[0] <= task)
        step.kill_one(task - first)

    def clear(self) -> None:
        """Nothing: Slurm ends what is left of a step."""
