from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.launcher.decisions.relaunch_policy import AttemptOutcome as Came
from healthd.launcher.decisions.relaunch_policy import AttemptProgress, RankEnd, judge_attempt
from healthd.launcher.rank_pages import (
    RankPage,
    answer_page_question,
    compute_progress,
    derive_rank_ends,
    parse_rank_pages,
)
from healthd.trainer.beacons.beacon import Acknowledgement, Beacon, MailboxOrder, Phase, RankPlacement
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.beacon_page import OrderOutcome
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.exit_codes import ExitCode, Leave
from healthd.trainer.framework import NoFramework
from healthd.trainer.guard import Guard

ORDER = MailboxOrder("o1", "checkpoint_then_eject", "a test", ("n1",), 9e9)


def never() -> bool:
    return False


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEALTHD_BEACON_DIR", str(tmp_path / "beacons"))
    prepare_directory(str(tmp_path / "beacons"))
    return tmp_path / "beacons"


def leave_page(directory: Path, rank: int, node: str, *, job: str = "j", attempt: int = 2, steps: int = 0) -> Beacon:
    beacon = Beacon.create(str(directory), RankPlacement(job, attempt, rank, 4, node=node))
    for step in range(steps):
        beacon.begin_step(step)
        beacon.end_step()
    return beacon


def test_a_node_tells_how_far_its_ranks_came_and_what_they_answered(directory: Path) -> None:
    done, left = leave_page(directory, 0, "n1", steps=3), leave_page(directory, 1, "n1", steps=1)
    others = [leave_page(directory, 2, "n2"), leave_page(directory, 3, "n1", attempt=1), leave_page(directory, 3, "n1", job="k")]  # fmt: skip
    post_order(left.path, ORDER)
    left.acknowledge(Acknowledgement("o1", OrderOutcome.LEFT, 1.0))
    done.phase(Phase.DONE)

    pages = parse_rank_pages({"n1": answer_page_question("n1", ("j", "2", "0"), never)})

    assert pages == [(0, "n1", 2, True, "", False, -1), (1, "n1", 0, False, "left", True, -1)]
    assert compute_progress(pages) == AttemptProgress(2)
    assert answer_page_question("n1", ("j", "2", "9e9"), never) == {"node": "n1", "pages": []}
    for beacon in (done, left, *others):
        beacon.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")
def test_another_users_page_says_nothing_of_this_job(directory: Path) -> None:
    beacon = leave_page(directory, 0, "n1", steps=3)
    os.chown(beacon.path, 65534, -1)

    assert answer_page_question("n1", ("j", "2", "0"), never) == {"node": "n1", "pages": []}
    beacon.close()


class GoesWrong(NamedTuple):
    """How a loop under guard ends."""

    error: BaseException | None
    code: int
    came: Came


@pytest.mark.parametrize(
    "way",
    [
        GoesWrong(SystemExit(93), 93, Came.NEVER_AGAIN),
        GoesWrong(Leave(ExitCode.NEVER_AGAIN), 93, Came.NEVER_AGAIN),
        GoesWrong(Leave(ExitCode.ABORTED), 92, Came.ORDERED),
        GoesWrong(RuntimeError("CUDA error"), 1, Came.CRASHED),
        GoesWrong(SystemExit("no such file"), 1, Came.CRASHED),
        GoesWrong(SystemExit(7), 1, Came.CRASHED),
        GoesWrong(SystemExit(), 0, Came.DONE),
        GoesWrong(None, 0, Came.DONE),
    ],
    ids=lambda way: repr(way.error),
)
def test_how_a_loop_ended_is_in_its_page_though_torchrun_ends_with_1(
    directory: Path, monkeypatch: pytest.MonkeyPatch, way: GoesWrong
) -> None:
    monkeypatch.setattr("healthd.trainer.process_exit.ExitGuard.leave_within", lambda *_: None)
    beacon = leave_page(directory, 0, "n1")
    place = RankPlacement("j", 2, 0, 1, node="n1")
    with contextlib.suppress(BaseException), Guard(place, beacon, None, framework=NoFramework(), termination_seconds=0):
        if way.error is not None:
            raise way.error

    pages = parse_rank_pages({"n1": answer_page_question("n1", ("j", "2", "0"), never)})
    told = derive_rank_ends([RankEnd(0, "n1", 1)], pages)

    assert [end.code for end in told] == [way.code]
    assert judge_attempt(told).outcome is way.came
    beacon.close()


def test_without_pages_nothing_is_known(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "healthd.launcher.rank_pages", "j", "1", "0"]
    environ = {"HEALTHD_NODE": "n1", "HEALTHD_BEACON_DIR": str(tmp_path / "absent")}

    said = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True).stdout

    assert json.loads(said) == {"node": "n1", "pages": []}
    assert compute_progress([]) == AttemptProgress(-1)


json_values = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["rank", "node", "step", "x"]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), st.dictionaries(st.just("pages"), json_values)))
def test_no_answer_breaks_the_reader(answers: dict[str, dict[str, object]]) -> None:
    assert all(isinstance(page.step, int) for page in parse_rank_pages(answers))


def page(
    rank: int, node: str, outcome: str = "", *, done: bool = False, condemned: bool = False, code: int = -1
) -> RankPage:
    return RankPage(rank, node, 7, done, outcome, condemned, code)


HIDDEN = [RankEnd(0, "n1", 1), RankEnd(1, "n2", 1)]


@pytest.mark.parametrize(
    ("ends", "pages", "codes", "came", "condemned"),
    [
        (HIDDEN, [page(0, "n1", "left"), page(1, "n2", "left", condemned=True)], [91, 90], Came.ORDERED, {"n2"}),
        (HIDDEN, [page(0, "n1", "left"), page(1, "n2", "saved")], [91, 91], Came.ORDERED, set()),
        (HIDDEN, [page(0, "n1", "aborted"), page(1, "n2", "failed")], [92, 92], Came.ORDERED, set()),
        (HIDDEN, [page(0, "n1", done=True), page(1, "n2")], [0, 1], Came.CRASHED, set()),
        (HIDDEN, [page(0, "n1", "expired"), page(1, "n2", "cancelled")], [1, 1], Came.CRASHED, set()),
        (HIDDEN, [], [1, 1], Came.CRASHED, set()),
        (HIDDEN, [page(0, "n1", "failed", code=93), page(1, "n2")], [93, 1], Came.NEVER_AGAIN, set()),
        (HIDDEN, [page(0, "n1", "failed", code=92), page(1, "n2", code=7)], [92, 1], Came.ORDERED, set()),
        ([RankEnd(0, "n1", 93), RankEnd(1, "n2", 1)], [page(0, "n1", "left")], [93, 1], Came.NEVER_AGAIN, set()),
        ([RankEnd(0, "n1", 0), RankEnd(1, "n2", 0)], [page(0, "n1", "left")], [0, 0], Came.DONE, set()),
        ([RankEnd(0, "n1", 1), RankEnd(1, "n2", None)], [page(0, "n1"), page(1, "n2")], [1, None], Came.LOST, {"n2"}),
        (
            [RankEnd(0, "n1", 1), RankEnd(1, "n2", -9, killed=True)],
            [page(0, "n1", "left"), page(1, "n1", "left"), page(2, "n2", "seen"), page(3, "n2", "left")],
            [91, 91, -9, 91],
            Came.ORDERED,
            {"n2"},
        ),
    ],
)
def test_what_torchrun_hides_is_in_the_pages(
    ends: list[RankEnd], pages: list[RankPage], codes: list[int], came: Came, condemned: set[str]
) -> None:
    told = derive_rank_ends(ends, pages)

    assert [end.code for end in told] == codes
    assert (judge_attempt(told).outcome, judge_attempt(told).condemned) == (came, condemned)


outcomes = st.sampled_from(["", *OrderOutcome])
nodes = st.sampled_from(["n1", "n2", "n3"])


@given(
    st.lists(st.builds(RankPage, st.integers(0, 9), nodes, st.integers(-1, 9), st.booleans(), outcomes, st.booleans())),
    st.lists(st.builds(RankEnd, st.integers(0, 9), nodes, st.sampled_from([None, 0, 1, -9, 90, 91, 93])), min_size=1),
)
def test_no_node_is_lost_or_invented_by_its_pages(pages: list[RankPage], ends: list[RankEnd]) -> None:
    told = derive_rank_ends(ends, pages)

    assert {end.node for end in told} == {end.node for end in ends}
    assert (judge_attempt(told).outcome is Came.DONE) >= (judge_attempt(ends).outcome is Came.DONE)
