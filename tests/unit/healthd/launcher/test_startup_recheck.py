"""Nodes that fall ill between the gate's question and the ranks' first step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from healthd.launcher.decisions.relaunch_policy import NO_PROGRESS, AttemptProgress, Fitness, NodeVerdict
from healthd.launcher.decisions.startup_recheck import StartupRecheck

ILL = [NodeVerdict("n1", Fitness.UNFIT, "GPU 3 is lost")]
FIRST_STEP = AttemptProgress(step=0)


class Nodes:
    """Nodes and ranks whose state a test sets; counts how often they are asked."""

    def __init__(self) -> None:
        self.unfit: Sequence[NodeVerdict] = []
        self.progress = NO_PROGRESS
        self.asked = 0

    def look(self, pause: float = 15.0) -> StartupRecheck:
        return StartupRecheck(self._ask, lambda: self.progress, began=100.0, pause=pause)

    def _ask(self) -> Sequence[NodeVerdict]:
        self.asked += 1
        return self.unfit


def times(look: StartupRecheck, until: float) -> list[float]:
    """Seconds after the start at which it finds somebody."""
    return [at for at in range(int(until)) if look.finds_unfit(100.0 + at)]


def test_a_node_that_stays_unfit_is_found_at_the_look_after() -> None:
    nodes = Nodes()
    nodes.unfit = ILL
    look = nodes.look()

    assert times(look, 26)[:1] == [25]
    assert look.found == ILL


def test_one_that_was_unfit_for_a_moment_is_not() -> None:
    nodes = Nodes()
    look = nodes.look()
    nodes.unfit = ILL
    assert not look.finds_unfit(115.0)
    nodes.unfit = []
    assert not times(look, 400)
    assert not look.found


@pytest.mark.parametrize("progress", [FIRST_STEP, AttemptProgress(touched=True)])
def test_a_job_that_trains_is_left_to_the_centre(progress: AttemptProgress) -> None:
    nodes = Nodes()
    look = nodes.look()
    nodes.unfit, nodes.progress = ILL, progress

    assert not times(look, 400)
    assert nodes.asked == 1
    assert not look.found


def test_a_step_between_the_two_looks_counts() -> None:
    nodes = Nodes()
    look = nodes.look()
    nodes.unfit = ILL
    assert not look.finds_unfit(115.0)
    nodes.progress = FIRST_STEP
    assert not times(look, 400)
    assert not look.found


def test_it_looks_five_times_and_then_no_more() -> None:
    nodes = Nodes()
    assert not times(nodes.look(), 4000)
    assert nodes.asked == 5


def test_it_can_be_turned_off() -> None:
    nodes = Nodes()
    nodes.unfit = ILL
    assert not times(nodes.look(pause=0.0), 4000)
    assert not nodes.asked
