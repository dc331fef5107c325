"""After which steps the state is copied to the nodes' memory: as often as pays, or as the environment says. No framework in here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from healthd.trainer.agreement import Store
from healthd.trainer.interval import Bounds, CheckpointInterval
from healthd.trainer.interval.checkpoint_schedule import parse_step_count

COPY_STEPS = "HEALTHD_COPY_STEPS"
# A lost rank costs half a minute of training at most, unless copies as frequent as that would cost more than a hundredth of
# it; the pace aims lower, because it does not see all of the cost (bench/copies.py: up to 1.4 times what it measures). The
# first step is copied, and soon others: that measures the cost.
BOUNDS = Bounds(least_s=1.0, most_s=30.0, first_steps=1, cost_share=0.007)


class CopyPace(NamedTuple):
    """The interval between copies. `every_step`: no finished step may be lost, so training waits for each copy."""

    interval: CheckpointInterval
    every_step: bool


def choose_copy_pace(store: Store | None, nodes: int, environ: Mapping[str, str]) -> CopyPace:
    """The pace of this job: from what a copy costs and how likely its nodes are to fail, unless HEALTHD_COPY_STEPS fixes it.

    Args:
        store: the ranks', for this alone.
        nodes: how many the job has.
        environ: of the rank.

    Raises:
        ValueError: the variable is no number of steps.
    """
    rest = {name: value for name, value in environ.items() if name != "HEALTHD_CHECKPOINT_STEPS"}
    interval = CheckpointInterval.from_env(store=store, nodes=nodes, bounds=BOUNDS, environ=rest)
    wanted = environ.get(COPY_STEPS)
    if not wanted:
        return CopyPace(interval, every_step=False)
    steps = parse_step_count(COPY_STEPS, wanted)
    interval.fix(steps)
    return CopyPace(interval, every_step=steps == 1)
