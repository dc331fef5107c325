"""What a baseline learns, from whom, and how far it may move."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.expect.fleet import DRIFT_IN_ALL, DRIFT_PER_LEARN, Baseline, Entry, Seen, level
from preflight.expect.learning import NODES_KEPT, held, learn, refusal
from preflight.results import Document, Outcome, Verdict
from tests.unit.preflight.expect.runs import document, rate

values = st.lists(st.floats(min_value=1.0, max_value=1000.0), min_size=1, max_size=4)
documents = st.lists(
    st.builds(
        document,
        st.sampled_from([f"n{i}" for i in range(6)]),
        values,
        st.integers(min_value=0, max_value=5).map(float),
        product=st.sampled_from(["NVIDIA H200", "NVIDIA B200", ""]),
        software=st.sampled_from([{"driver": "570"}, {"driver": "580"}]),
    ),
    max_size=12,
)
spoiled = st.builds(
    lambda spoil, node, reached: document(node, reached, 99.0, **spoil),
    st.sampled_from(
        [
            *({"verdict": verdict} for verdict in Verdict if verdict is not Verdict.PASS),
            {"injected": ("matmul_repeat:nan",)},
            {"complete": False},
        ]
    ),
    st.sampled_from(["n1", "n9"]),
    values,
)


def usual(baseline: Baseline) -> float:
    (entry,) = baseline.entries
    found = level(entry)
    assert found
    return found.usual


def fleet(value: float, at: float, nodes: int = 5) -> list[Document]:
    return [document(f"n{i}", [value] * 2, at) for i in range(nodes)]


@settings(max_examples=60)
@given(documents, st.randoms(use_true_random=False))
def test_the_order_of_documents_changes_nothing(found: list[Document], chance: object) -> None:
    shuffled = list(found)
    chance.shuffle(shuffled)  # type: ignore[attr-defined] - hypothesis' Random
    assert learn(shuffled) == learn(found)


@settings(max_examples=60)
@given(documents, st.lists(spoiled, max_size=4))
def test_what_did_not_pass_teaches_nothing(found: list[Document], bad: list[Document]) -> None:
    assert all(refusal(each) for each in bad)
    assert learn([*bad, *found]) == learn(found)


@settings(max_examples=60)
@given(documents, documents)
def test_nothing_new_changes_nothing(first: list[Document], second: list[Document]) -> None:
    once = learn(second, learn(first))
    assert learn([*second, *first], once) == once


@settings(max_examples=40)
@given(st.lists(documents, max_size=6))
def test_a_level_never_runs_away(batches: list[list[Document]]) -> None:
    baseline = Baseline()
    for batch in batches:
        levels = {(entry.key, entry.software): level(entry) for entry in baseline.entries}
        baseline = learn(batch, baseline)
        for entry in baseline.entries:
            was, now = levels.get((entry.key, entry.software)), level(entry)
            if was and now:
                assert abs(now.usual / was.usual - 1) <= DRIFT_PER_LEARN + 1e-9
            if now and entry.first:
                assert abs(now.usual / entry.first - 1) <= DRIFT_IN_ALL + 1e-9


@given(documents)
def test_a_baseline_survives_its_file(found: list[Document]) -> None:
    baseline = learn(found)
    assert msgspec.json.decode(msgspec.json.encode(baseline), type=Baseline) == baseline


def test_a_node_counts_once_by_its_newest_document() -> None:
    (entry,) = learn([document("n1", [10.0, 12.0], at=1), document("n1", [20.0], at=2), document("n2", [11.0])]).entries
    assert entry.nodes == {"n1": Seen(2.0, (20.0,)), "n2": Seen(1.0, (11.0,))}
    assert level(entry) is None


def test_few_slow_nodes_do_not_move_the_level() -> None:
    slow = [document(f"slow{i}", [50.0] * 8) for i in range(4)]
    assert usual(learn([*fleet(100.0, 1.0), *slow])) == 100.0


def test_a_fleet_that_slows_is_followed_slowly_and_not_far() -> None:
    baseline = learn(fleet(100.0, 1.0))
    reached = []
    for step in range(2, 12):
        baseline = learn(fleet(80.0, float(step)), baseline)
        reached.append(usual(baseline))
    assert reached[0] == pytest.approx(98.0)
    assert reached[1] == pytest.approx(96.04)
    assert reached[-1] == pytest.approx(90.0)
    assert "learn with --accept" in held(baseline)[0]
    accepted = learn([], baseline, accept=True)
    assert usual(accepted) == 80.0
    assert held(accepted) == []


def test_a_step_that_will_be_followed_says_so() -> None:
    baseline = learn(fleet(95.0, 2.0), learn(fleet(100.0, 1.0)))
    assert "moves on" in held(baseline)[0]


def test_a_node_without_a_known_product_teaches_nothing() -> None:
    assert learn([document("n1", [1.0], product="")]) == Baseline()


def test_only_results_that_passed_teach() -> None:
    found = document("n1", [1.0, 2.0])
    skipped = msgspec.structs.replace(found.results[0], outcome=Outcome.NOT_APPLICABLE)
    (entry,) = learn([msgspec.structs.replace(found, results=(skipped, found.results[1]))]).entries
    assert entry.nodes["n1"].values == (2.0,)


def test_an_entry_keeps_its_newest_nodes() -> None:
    many = [document(f"n{i}", [100.0], at=float(i)) for i in range(NODES_KEPT + 3)]
    (entry,) = learn(many).entries
    assert len(entry.nodes) == NODES_KEPT
    assert "n0" not in entry.nodes
    assert f"n{NODES_KEPT + 2}" in entry.nodes


def test_each_software_has_its_own_level_and_old_ones_go() -> None:
    baseline = Baseline()
    for at, driver in enumerate(("550", "560", "570", "580")):
        new = [document(f"n{i}", [100.0 - at], float(at), software={"driver": driver}) for i in range(4)]
        baseline = learn(new, baseline)
    assert [(e.software, e.first, e.before) for e in baseline.entries] == [
        ("driver 560", 99.0, 0.0),
        ("driver 570", 98.0, 0.0),
        ("driver 580", 97.0, 0.0),
    ]


def test_another_unit_begins_anew() -> None:
    before = learn([document("n1", [1.0])])
    (entry,) = learn([document("n2", [1000.0], figure=rate(1.0, unit="GFLOP/s"))], before).entries
    assert (entry.unit, list(entry.nodes)) == ("GFLOP/s", ["n2"])


@given(st.lists(st.lists(st.floats(min_value=1.0, max_value=1000.0), min_size=1, max_size=8), min_size=4, max_size=9))
def test_a_node_is_left_out_wholly(nodes: Sequence[Sequence[float]]) -> None:
    def entry(chosen: Sequence[Sequence[float]]) -> Entry:
        seen = {f"n{i}": Seen(1.0, tuple(each)) for i, each in enumerate(chosen)}
        return Entry(product="P", test="t", figure="f", setting="", unit="GB/s", nodes=seen)

    without = level(entry(nodes), without=f"n{len(nodes) - 1}")
    assert without == level(entry(nodes[:-1]))
    assert without
    assert without.usual == statistics.median(statistics.median(each) for each in nodes[:-1])
