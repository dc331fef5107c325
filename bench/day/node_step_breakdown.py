"""Where the node-steps go that a run could have made and did not make. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from bench.day import assumptions
from bench.day.records import StepLine

CHECKPOINT_EVERY = round(assumptions.CHECKPOINT.here / assumptions.STEP.here)  # steps, as the trainer has it


class Breakdown(msgspec.Struct):
    """Node-steps, by cause.

    `fewer`: a step takes longer while a job has fewer nodes than it wants; `again`: trained, and lost with a stop; `standing`: at
    the end, by jobs that did not train any more.
    """

    restarts: float = 0.0
    swaps: float = 0.0
    checkpoints: float = 0.0
    slower: float = 0.0
    fewer: float = 0.0
    standing: float = 0.0
    again: float = 0.0

    @property
    def total(self) -> float:
        """Of all causes."""
        return sum(self.by_cause().values())

    def by_cause(self) -> dict[str, float]:
        """For a table."""
        return {
            "restarts": self.restarts,
            "swaps": self.swaps,
            "checkpoint pauses": self.checkpoints,
            "slower steps": self.slower,
            "fewer nodes": self.fewer,
            "standing still at the end": self.standing,
            "steps trained and lost": self.again,
        }


def classify_node_steps(
    steps: Mapping[str, Sequence[StepLine]], begin: float, end: float, usual_s: float, lost: float
) -> Breakdown:
    """Each job's time since `begin`, beyond what its steps take at the usual pace. Args: `lost`: node-steps that are not useful."""
    found = Breakdown(again=lost)
    for lines in steps.values():
        for one, after in itertools.pairwise(lines):
            seconds = after.at - max(one.at, begin)
            if after.at > begin:
                fewer = after.nodes * (after.nodes / after.world - 1)
                found.fewer += fewer
                _add(found, one, after, (seconds - usual_s) * after.nodes / usual_s - fewer)
        found.standing += max(0.0, end - lines[-1].at - usual_s) * lines[-1].nodes / usual_s
    return found


def _add(found: Breakdown, one: StepLine, after: StepLine, missed: float) -> None:
    if one.attempt != after.attempt:
        found.restarts += missed
    elif one.generation != after.generation:
        found.swaps += missed
    elif one.step % CHECKPOINT_EVERY == 0:
        found.checkpoints += missed
    else:
        found.slower += missed


def count_lost_steps_by_cause(stops: Iterable[tuple[bool, int]]) -> tuple[int, int]:
    """Steps lost in swaps and in restarts. Args: `stops`: whether it was a swap, and how many steps it cost."""
    parts = list(stops)
    return sum(lost for swap, lost in parts if swap), sum(lost for swap, lost in parts if not swap)
