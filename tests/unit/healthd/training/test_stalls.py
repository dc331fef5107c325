"""Ranks that end at different times: who stays and waits is judged without those that have ended."""

from __future__ import annotations

import pytest

from healthd.checks.training_checks import Limits, TrainingCheck
from healthd.findings.facts import Moment, Raise
from healthd.samples.rank_steps import RankSteps, StepFacts
from healthd.thresholds import load_thresholds

LIMITS = load_thresholds().section("training", Limits)
STEPS = 300
WAITING = ("step", "communication", True)


def rank(number: int, completed: int, phase: str = "step", section: str = "", *, alive: bool = True) -> RankSteps:
    save_s = 0.1 if completed == 50 else 0.0
    new = (StepFacts(completed - 1, completed - 1, float(completed), 1.0, save_s),)
    return RankSteps("j", 1, number, 4, 100 + number, alive, completed, completed, phase, section, new)


def stalled(*states: tuple[str, str, bool], seconds: int = 200) -> Raise | None:
    """What is held after `seconds` in which the ranks of a job that trained stay in a phase, a section, and alive."""
    check = TrainingCheck(LIMITS)
    for n in range(1, STEPS + 1):
        check.judge([rank(number, n) for number in range(len(states))], Moment(1e9 + n, float(n)))
    last = [rank(number, STEPS, phase, section, alive=alive) for number, (phase, section, alive) in enumerate(states)]
    held = [check.judge(last, Moment(1e9 + at, float(at))) for at in range(STEPS + 1, STEPS + seconds)][-1]
    found = [fact for fact in held if isinstance(fact, Raise) and fact.code == "stalled"]
    return found[0] if found else None


@pytest.mark.parametrize("alive", [True, False])
def test_a_rank_that_is_done_does_not_hide_that_the_others_wait_for_it(*, alive: bool) -> None:
    fact = stalled(("done", "", alive), WAITING, WAITING)
    assert fact is not None
    found = {key: fact.evidence[key] for key in ("rank", "not_arrived", "waiting", "dead", "done", "missing")}
    assert found == {"rank": 1, "not_arrived": "", "waiting": "1, 2", "dead": "", "done": "0", "missing": "done"}
    assert "rank 0 has finished training, the others have not" in fact.summary


def test_a_rank_that_hangs_is_named_before_one_that_is_done() -> None:
    fact = stalled(("done", "", True), ("step", "forward", True), WAITING)
    assert fact is not None
    assert (fact.evidence["not_arrived"], fact.evidence["done"], fact.evidence["missing"]) == ("1", "0", "here")


def test_a_rank_that_never_gets_through_with_its_vote_stalls_the_job() -> None:
    fact = stalled(("agreeing", "", True), WAITING)
    assert fact is not None
    assert (fact.evidence["rank"], fact.evidence["phase"], fact.evidence["not_arrived"]) == (0, "agreeing", "0")


@pytest.mark.parametrize("phase", ["leaving", "aborting"])
def test_who_leaves_by_its_deadline_does_not_hide_who_stays(phase: str) -> None:
    fact = stalled((phase, "", True), WAITING)
    assert fact is not None
    assert fact.evidence["waiting"] == "1"


@pytest.mark.parametrize("phase", ["leaving", "aborting", "done"])
def test_ranks_that_all_end_are_left_alone(phase: str) -> None:
    assert stalled((phase, "", True), ("done", "", True), seconds=4000) is None
