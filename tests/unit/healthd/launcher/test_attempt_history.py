from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.launcher.decisions.attempt_history import count_failed_requeues, rebuild_history
from healthd.launcher.decisions.relaunch_policy import GateMode, RankEnd, RetryLimits
from healthd.launcher.decisions.requeue_policy import RequeueDecision
from healthd.launcher.job_definition import JobDefinition
from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.launch_loop import Launcher
from healthd.launcher.scheduler_backend import Announce, Answers, Attempt, Event
from vocabulary.clock import SystemClock


def ended(outcome: str = "crashed", step: int = -1, **more: Any) -> dict[str, Any]:
    return {"event": "attempt_ended", "outcome": outcome, "step": step, **more}


def stopped(code: int) -> dict[str, Any]:
    return {"event": "stopped", "code": code}


REQUEUED = {"event": "requeued", "code": 75}


STEP_NO_NUMBER = ended() | {"step": "x"}


@pytest.mark.parametrize(
    ("events", "crashes", "step"),
    [
        ([], 0, -1),
        ([ended(), REQUEUED, ended()], 2, -1),
        ([ended(), stopped(75), ended()], 2, -1),
        ([ended(), ended("lost"), REQUEUED, ended()], 2, -1),
        ([ended(step=5), ended(step=5), REQUEUED, ended(step=4)], 2, 5),
        ([ended(), ended(step=5), REQUEUED], 0, 5),
        ([ended(), ended(advanced=True)], 0, -1),
        ([ended(), ended("ordered"), REQUEUED], 0, -1),
        ([ended(), ended(), stopped(1), ended()], 1, -1),
        ([ended(), stopped(143)], 0, -1),
        ([ended(), {"event": "attempt_ended"}, ended("unheard of"), {"event": "stopped"}, STEP_NO_NUMBER], 1, -1),
    ],
)
def test_what_is_remembered(events: list[dict[str, Any]], crashes: int, step: int) -> None:
    history = rebuild_history(events)

    assert (history.crashes, history.step) == (crashes, step)
    assert history.restarts == 0
    assert not history.excluded


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just([])
names = st.sampled_from(["event", "outcome", "step", "advanced", "code"])
words = st.sampled_from(["attempt_ended", "stopped", "crashed", "lost"])


@given(st.lists(st.dictionaries(names, values | words), max_size=9))
def test_no_event_breaks_the_memory(events: list[dict[str, Any]]) -> None:
    assert rebuild_history(events).crashes >= 0


def test_requeues_in_vain_are_those_since_the_last_attempt() -> None:
    started = {"event": "attempt_started"}
    assert count_failed_requeues([]) == 0
    asked = {"event": "requeuing"}
    assert count_failed_requeues([asked, REQUEUED, {"event": "gate"}, asked, REQUEUED]) == 2
    assert count_failed_requeues([asked, REQUEUED, started, ended(), asked, REQUEUED]) == 1
    assert count_failed_requeues([asked, {"event": "gate"}, asked]) == 2  # Slurm ended both launchers at once


class CrashesThenTooFew:
    """A backend of one node: the ranks crash, then that node is gone. It counts what is asked of it."""

    name, attempts_before, resizable = "pretended", 0, False

    def __init__(self, requeues_before: int) -> None:
        self.requeues_before = requeues_before
        self.left = ["n0"]
        self.requeued = 0
        self.in_vain = -1

    def job(self) -> str:
        return "j"

    def nodes(self) -> tuple[str, ...]:
        return tuple(self.left)

    def guard_host(self, _events: Path | None) -> AbstractContextManager[None]:
        return nullcontext()

    def ask(self, *_: object) -> Answers:
        return {}

    def start(self, attempt: Attempt) -> CrashesThenTooFew:
        assert attempt.nodes == ("n0",)
        self.left = []
        return self

    condemned = ()
    rank_nodes = ("n0",)

    def ended(self) -> list[RankEnd]:
        return [RankEnd(0, "n0", -11)]

    def take_events(self) -> Sequence[Event]:
        return ()

    def over(self) -> bool:
        return True

    def terminate(self) -> None:
        """Nothing runs."""

    kill = clear = terminate

    def requeue(self, _refused: Collection[str], in_vain: int, _announce: Announce) -> RequeueDecision:
        self.requeued += 1
        self.in_vain = in_vain
        return RequeueDecision()


@pytest.mark.parametrize(
    ("before", "events", "code", "requeued"), [(0, "", 75, 1), (1, "", 75, 1), (2, "", 1, 0), (9, "events", 75, 1)]
)
def test_a_job_that_only_crashes_is_not_queued_again_for_ever(
    tmp_path: Path, before: int, events: str, code: int, requeued: int
) -> None:
    """Where no journal tells how the times before ended, the queue's own count stands for it."""
    backend, clock = CrashesThenTooFew(before), SystemClock()
    journal = LaunchJournal(tmp_path / events if events else None, "j", clock)
    job = JobDefinition(("x",), 1, gate=GateMode.OFF, limits=RetryLimits(crashes=3, backoff_seconds=0.0))

    assert Launcher(job, backend, journal, clock).run() == code
    assert backend.requeued == requeued


@pytest.mark.parametrize(
    ("events", "left", "in_vain"), [("", [], 7), ("events", [], 2), ("", ["n0"], 0), ("events", ["n0"], 0)]
)
def test_who_comes_back_without_an_attempt_came_in_vain(
    tmp_path: Path, events: str, left: list[str], in_vain: int
) -> None:
    backend, clock = CrashesThenTooFew(7), SystemClock()
    backend.left = left
    journal = LaunchJournal(tmp_path / events if events else None, "j", clock)
    for _ in range(2):
        journal.write("requeuing", "asking")
    job = JobDefinition(("x",), 1, gate=GateMode.OFF, limits=RetryLimits(crashes=99, backoff_seconds=0.0))

    assert Launcher(job, backend, journal, clock).run() == 75
    assert backend.in_vain == in_vain
