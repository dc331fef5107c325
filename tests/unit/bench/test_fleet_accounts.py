from __future__ import annotations

import math

from bench.fleet.accounts import Accounts, Key, Stored, compare_findings, compute_quantiles, fit_slope
from bench.fleet.outcome import Sent

SENT = Sent("n1", "xid/79", "gpu:G", active=True, acknowledged=True)
STORED = Stored("n1", "xid/79", active=True)
KEY = Key("n1", "xid/79", "gpu:G")


def wrong(accounts: Accounts) -> dict[str, tuple[object, ...]]:
    return {name: found for name, found in accounts._asdict().items() if found}


def test_a_finding_that_is_there_once_is_good() -> None:
    assert compare_findings({"f": SENT}, {"f": STORED}, {KEY: 1}).good


def test_what_was_acknowledged_and_is_not_there_is_lost() -> None:
    assert wrong(compare_findings({"f": SENT}, {}, {KEY: 1})) == {"lost": ("f",)}


def test_what_was_never_acknowledged_is_not_good_either() -> None:
    sent = Sent("n1", "xid/79", "gpu:G", active=True, acknowledged=False)
    assert wrong(compare_findings({"f": sent}, {}, {})) == {"not_taken": ("f",)}


def test_an_end_that_was_acknowledged_must_be_there() -> None:
    over = Sent("n1", "xid/79", "gpu:G", active=False, acknowledged=True)
    assert wrong(compare_findings({"f": over}, {"f": STORED}, {KEY: 1})) == {"other": ("f",)}


def test_a_finding_of_another_node_under_its_id_is_seen() -> None:
    assert wrong(compare_findings({"f": SENT}, {"f": Stored("n2", "xid/79", active=True)}, {KEY: 1})) == {
        "other": ("f",)
    }


def test_twice_is_not_once() -> None:
    assert wrong(compare_findings({"f": SENT}, {"f": STORED}, {KEY: 2})) == {"miscounted": (KEY,)}


def test_what_nobody_sent_is_seen_and_what_the_centre_concludes_is_not_ours() -> None:
    stored = {"f": STORED, "g": STORED, "h": Stored("n1", "straggler/slow", active=True)}
    assert wrong(compare_findings({"f": SENT}, stored, {KEY: 1})) == {"never_sent": ("g",)}


def test_quantiles_are_in_milliseconds() -> None:
    assert compute_quantiles([n / 1000 for n in range(1, 101)]) == (51.0, 100.0, 100.0)
    assert all(math.isnan(each) for each in compute_quantiles([]))


def test_a_slope_is_per_unit_of_the_first() -> None:
    assert fit_slope([(0.0, 5.0), (1.0, 7.0), (2.0, 9.0)]) == 2.0
    assert fit_slope([(1.0, 5.0)]) == 0.0
