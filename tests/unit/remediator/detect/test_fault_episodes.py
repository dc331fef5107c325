"""A fault soon after a return continues its episode: it is little evidence for a lemon."""

from __future__ import annotations

import numpy as np
import pytest

from bench.lemon_episodes import EpisodeShape, draw_episodic_fleet
from bench.lemon_fleets import BEGAN, Rows
from remediator.detection.lemons import DAY_S, Judged, Kind, judge_lemons
from remediator.detection.lemons.fault_episodes import (
    RELAPSE_D,
    UNHELPFUL_SHARE,
    days_since_return,
    relapse_rate,
    unhelpful_repair_share,
)
from remediator.detection.lemons.incident_attribution import attribute_incidents

NOW = BEGAN + 28 * DAY_S
NODES = 400


def since_return(rows: Rows, node: int = 0) -> list[float]:
    known = rows.history(NODES).until(NOW)
    found = attribute_incidents(known)
    return [round(float(days), 3) for days in days_since_return(known, found)[found.node == node]]


def at(*days: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return BEGAN + DAY_S * np.array(days)


def outages(rows: Rows, node: int, spans: list[tuple[float, float]]) -> None:
    """Failures with the days in which the node was out for them."""
    for failed, back in spans:
        rows.add(Kind.FAILURE, node, at(failed))
        rows.add(Kind.REMOVED, node, at(failed) + 60)
        rows.add(Kind.RETURNED, node, at(back))


def relapsing_fleet(spans: list[tuple[float, float]]) -> Rows:
    """Node 0 has these outages; of 60 others each fails once, and of every fifth the first repair does not help."""
    rows = Rows()
    outages(rows, 0, spans)
    for node in range(1, 61):
        day = node * 0.38
        outages(rows, node, [(day, day + 0.1), (day + 1.4, day + 1.5)][: 2 if node % 5 == 0 else 1])
    return rows


def judged(rows: Rows) -> Judged:
    return judge_lemons(rows.history(NODES), NOW, fleet_nodes=NODES)


def test_days_count_from_the_return_after_the_fault_before() -> None:
    rows = Rows()
    outages(rows, 0, [(1, 5), (6.5, 6.75), (20, 20.5)])
    assert since_return(rows) == [np.inf, 1.5, 13.25]


def test_the_end_of_a_repair_or_removal_is_a_return_and_a_later_cordon_is_none() -> None:
    rows = Rows()
    rows.add(Kind.FAILURE, 0, at(1, 4, 12))
    rows.add(Kind.REPAIRED, 0, at(1.1), end=at(3.5))
    rows.add(Kind.REMOVED, 0, at(4.1), end=at(5))
    rows.add(Kind.CORDONED, 0, at(11), end=at(11.5))  # planned, long after the fault
    assert since_return(rows) == [np.inf, 0.5, 7.0]


def test_without_a_return_days_count_from_the_fault_before_and_hints_start_no_outage() -> None:
    rows = Rows()
    rows.add(Kind.FAILURE, np.arange(1, 60), at(2))  # a record whose failures weigh one
    rows.add(Kind.FAILURE, 0, at(1, 10))
    rows.add(Kind.TICKET, 0, at(9))
    assert since_return(rows) == [np.inf, 8.0, 9.0]


def test_the_rate_of_relapse_decays_and_ends_and_grows_once_a_repair_failed() -> None:
    rate = relapse_rate(np.array([np.inf, 0.0, RELAPSE_D, 2.99, 3.0]), 0.2)
    assert rate == pytest.approx([0, 0.2 / 0.76, 0.4 / 0.76 / np.e, 0.4 / 0.76 * np.exp(-2.99 / 0.76), 0])


def test_the_share_of_unhelpful_repairs_is_the_published_one_until_the_fleet_shows_its_own() -> None:
    def share(rows: Rows) -> float:
        known = rows.history(NODES).until(NOW)
        found = attribute_incidents(known)
        return unhelpful_repair_share(found, days_since_return(known, found), NOW)

    assert share(Rows()) == UNHELPFUL_SHARE
    helpful, lemon = Rows(), Rows()
    for rows in (helpful, lemon):
        for node in range(1, 100):
            outages(rows, node, [(node / 5, node / 5 + 0.2)])
    outages(lemon, 0, [(day, day + 0.2) for day in np.arange(1, 26, 1.5)])
    assert share(helpful) < 0.05
    assert share(lemon) < share(helpful) + 0.02, "a lemon counts once"
    assert 0.15 < share(relapsing_fleet([])) < 0.25


def test_two_repairs_that_did_not_help_make_no_lemon_but_faults_of_their_own_do() -> None:
    episode = judged(relapsing_fleet([(20, 20.1), (20.8, 20.9), (22, 22.1)])).probability[0]
    apart = judged(relapsing_fleet([(8, 8.1), (15, 15.1), (22, 22.1), (26.5, 26.6)])).probability[0]
    assert episode < 0.1
    assert apart > 0.5


def test_a_node_that_fails_every_day_whatever_is_repaired_is_a_lemon() -> None:
    spans = [(day, day + 0.1) for day in np.arange(4, 28, 1.2)]
    assert judged(relapsing_fleet(spans)).probability[0] > 0.9


@pytest.mark.parametrize("record", ["returns", "repairs", "bare"])
def test_a_fleet_without_lemons_whose_faults_return_has_none(record: str) -> None:
    for seed in (11, 12):
        for repairs in ("automatic", "heavy"):
            drawn = draw_episodic_fleet(seed, EpisodeShape(nodes=800, record=record, repairs=repairs))  # type: ignore[arg-type]  # a table
            found = judge_lemons(drawn.fleet.history, drawn.fleet.as_of, fleet_nodes=800)
            assert found.probability.max() < 0.75


def test_what_is_promised_with_near_certainty_comes_true() -> None:
    """The reliability of the top bin, on few fleets; bench/calibrate_lemons.py has the whole table."""
    promised, lemons = 0.0, 0
    for seed in (1, 2, 3):
        drawn = draw_episodic_fleet(seed, EpisodeShape(nodes=800, lemons=0.02, repairs="heavy", record="repairs"))
        found = judge_lemons(drawn.fleet.history, drawn.fleet.as_of, fleet_nodes=800)
        sure = found.probability >= 0.8
        promised, lemons = promised + float(found.probability[sure].sum()), lemons + int(drawn.fleet.lemon[sure].sum())
    assert promised > 3
    assert lemons >= 0.8 * promised
