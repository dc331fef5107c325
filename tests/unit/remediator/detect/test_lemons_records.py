"""Records as sites write them: only who failed is listed, cordons have no end, users and jobs bring their own faults."""

from __future__ import annotations

import numpy as np
import pytest

from bench.lemon_fleets import BEGAN, Rows
from remediator.detection.lemons import DAY_S, Judged, Kind, Mark, judge_lemons
from remediator.detection.lemons.failure_record import out_of_service

NOW = BEGAN + 28 * DAY_S


def scattered(rows: Rows, first: int, many: int, days: float = 28.0, kind: Kind = Kind.FAILURE, **more: object) -> None:
    """One row on each of so many nodes, evenly over the days."""
    rows.add(kind, first + np.arange(many), BEGAN + DAY_S * days * (0.5 + np.arange(many)) / many, **more)


def sick(rows: Rows, nodes: range, days: tuple[float, ...], kind: Kind = Kind.FAILURE, **more: object) -> None:
    """The same days for each of these nodes, some minutes apart."""
    for node in nodes:
        rows.add(kind, node, BEGAN + DAY_S * np.array(days) + 3000.0 * node, **more)


def test_lemons_do_not_make_a_fleet_look_small_of_which_only_failures_are_told() -> None:
    """Of 460 nodes some 20 fail in a week; Chao's bound from nodes hit once and twice would see 70."""
    rows = Rows()
    scattered(rows, 5, 20, days=7)
    sick(rows, range(3), (1, 4))
    sick(rows, range(3, 5), (1, 3, 5))
    found = judge_lemons(rows.history(25), BEGAN + 7 * DAY_S)
    assert found.fleet_nodes > 150
    assert found.probability[3:5].min() > 0.5 > found.probability[5:].max()


def test_a_record_of_xids_alone_is_one_of_failures() -> None:
    def told(kind: Kind) -> Judged:
        rows = Rows()
        scattered(rows, 3, 40, kind=kind, code=79)
        sick(rows, range(3), (2, 6, 11, 15, 20, 26), kind=kind, code=79)
        return judge_lemons(rows.history(43), NOW)

    by_xids, by_failures = told(Kind.XID), told(Kind.FAILURE)
    assert by_xids.probability[:3].min() > 0.9
    assert by_xids.probability == pytest.approx(by_failures.probability, abs=0.02)


def test_halved_blame_everywhere_is_no_smaller_fleet() -> None:
    """Each failure names one node of a job of four, and so counts three quarters."""

    def told(size: float) -> Judged:
        rows = Rows()
        scattered(rows, 2, 40, size=size)
        sick(rows, range(2), (2, 8, 14, 20), size=size)
        return judge_lemons(rows.history(42), NOW)

    assert told(4.0).fleet_nodes == pytest.approx(told(np.nan).fleet_nodes, rel=0.02)


def test_who_is_cordoned_without_an_end_has_not_been_quiet_since() -> None:
    def chance(*, cordoned: bool) -> float:
        rows = Rows()
        scattered(rows, 1, 40)
        sick(rows, range(1), (1, 3, 5))
        if cordoned:
            rows.add(Kind.CORDONED, 0, BEGAN + 5.1 * DAY_S)
            rows.add(Kind.CORDONED, np.arange(1, 5), BEGAN + 6 * DAY_S)
        return float(judge_lemons(rows.history(400), NOW).probability[0])

    assert chance(cordoned=True) > chance(cordoned=False) + 0.1


def test_who_fails_again_was_back_whether_or_not_anybody_wrote_it_down() -> None:
    rows = Rows()
    rows.add(Kind.REMOVED, [0, 1, 2], BEGAN + DAY_S * np.array([1.0, 1.0, 20.0]))
    rows.add(Kind.RETURNED, 2, BEGAN + 22 * DAY_S)
    rows.add(Kind.FAILURE, 0, BEGAN + 9 * DAY_S)
    node, start, end = out_of_service(rows.history(3).until(NOW), NOW)
    assert node.tolist() == [0, 1, 2]
    assert ((end - start) / DAY_S).tolist() == [1.0, 27.0, 2.0]


def test_a_record_in_which_the_removed_fail_again_tells_no_returns() -> None:
    rows = Rows()
    rows.add(Kind.REMOVED, np.arange(20), BEGAN + DAY_S)
    rows.add(Kind.FAILURE, [0, 1, 2, 3], BEGAN + DAY_S * np.array([9.0, 11, 15, 21]))
    _, start, end = out_of_service(rows.history(20).until(NOW), NOW)
    assert ((end - start) / DAY_S).tolist() == [1.0] * 20


def users(rows: Rows, first: int) -> None:
    """Others' failures: forty nodes, ten users."""
    for user in range(10):
        scattered(rows, first + 4 * user, 4, user=user, job=user)


def test_the_user_whose_jobs_crash_on_all_their_nodes_is_to_blame_also_where_each_has_several() -> None:
    """Twelve nodes of his, four at a time, fifteen times each; and one that also fails by itself."""
    rows, rng = Rows(), np.random.default_rng(0)
    users(rows, 20)
    for number in range(45):
        crashed = (4 * number + np.arange(4)) % 12
        when = BEGAN + DAY_S * (1 + 25 * rng.random())
        rows.add(Kind.FAILURE, crashed, when, user=99, job=100 + number, size=4)
    sick(rows, range(1), (3, 7, 12, 16, 21, 25), user=3, job=900)
    found = judge_lemons(rows.history(400), NOW)
    assert found.probability[1:12].max() < 0.35
    assert found.probability[0] > 0.5


def test_a_job_that_fails_wherever_it_is_tried_is_to_blame_though_its_size_is_not_told() -> None:
    rows, rng = Rows(), np.random.default_rng(1)
    for number in range(40):
        rows.add(Kind.FAILURE, 20 + number, BEGAN + DAY_S * 28 * rng.random(), job=number)
    for tried in range(60):
        rows.add(Kind.FAILURE, tried % 12, BEGAN + DAY_S * (2 + 0.4 * tried), job=77)
    assert judge_lemons(rows.history(400), NOW).probability[:12].max() < 0.35


def test_who_fails_often_shows_several_xids_for_that_alone() -> None:
    rows = Rows()
    codes = np.array([48, 79, 94, 95, 74, 119])
    scattered(rows, 1, 60, kind=Kind.XID, code=np.tile(codes, 10))
    rows.add(Kind.XID, 0, BEGAN + DAY_S * np.array([4.0, 12.0, 20.0]), code=codes[:3])
    assert judge_lemons(rows.history(400), NOW).marks[0, Mark.XID_CODES] < 0.4
    # Where the others show one and the same, three are news.
    plain = Rows()
    scattered(plain, 1, 60, kind=Kind.XID, code=79)
    plain.add(Kind.XID, 0, BEGAN + DAY_S * np.array([4.0, 12.0, 20.0]), code=codes[:3])
    assert judge_lemons(plain.history(400), NOW).marks[0, Mark.XID_CODES] > 0.8
