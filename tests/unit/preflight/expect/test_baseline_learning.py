"""What a baseline learns, from whom, and how far it may move."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.expectations.baseline_learning import (
    NODES_KEPT,
    explain_outdated,
    explain_refusal,
    forget_node,
    learn_baseline,
    list_held_levels,
    list_moved_levels,
)
from preflight.expectations.fleet_baseline import (
    DRIFT_IN_ALL,
    DRIFT_PER_LEARN,
    Baseline,
    BaselineEntry,
    NodeObservation,
    compute_level,
)
from preflight.results import Document, Outcome, Verdict
from tests.unit.preflight.expect.runs import document, rate

values = st.lists(st.floats(min_value=1.0, max_value=1000.0), min_size=1, max_size=4)
documents = st.lists(
    st.builds(
        lambda names, *rest, **more: document(names[0], *rest, machine=names[1], **more),
        st.sampled_from([*((f"n{i}", "") for i in range(4)), ("n4", "m"), ("n4.cluster", "m")]),
        values,
        st.integers(min_value=1, max_value=6).map(float),
        product=st.sampled_from(["NVIDIA H200", "NVIDIA B200", ""]),
        software=st.sampled_from([{"driver": "570"}, {"driver": "580"}]),
        verdict=st.sampled_from([Verdict.PASS, Verdict.PASS, Verdict.PASS, Verdict.FAIL]),
    ),
    max_size=12,
)
spoiled = st.builds(
    lambda spoil, node, reached: document(node, reached, 99.0, **spoil),
    st.sampled_from(
        [
            *({"verdict": verdict} for verdict in Verdict if verdict not in (Verdict.PASS, Verdict.FAIL)),
            {"injected": ("matmul_repeat:nan",)},
            {"injected": ("matmul_repeat:nan",), "verdict": Verdict.FAIL},
            {"complete": False},
        ]
    ),
    st.sampled_from(["n1", "n9"]),
    values,
)


def usual(baseline: Baseline) -> float:
    (entry,) = baseline.entries
    found = compute_level(entry)
    assert found
    return found.usual


def fleet(value: float, at: float, nodes: int = 5) -> list[Document]:
    return [document(f"n{i}", [value] * 2, at) for i in range(nodes)]


@settings(max_examples=60)
@given(documents, st.randoms(use_true_random=False))
def test_the_order_of_documents_changes_nothing(found: list[Document], chance: object) -> None:
    shuffled = list(found)
    chance.shuffle(shuffled)  # type: ignore[attr-defined] - hypothesis' Random
    assert learn_baseline(shuffled) == learn_baseline(found)


@settings(max_examples=60)
@given(documents, st.lists(spoiled, max_size=4))
def test_what_did_not_pass_teaches_nothing(found: list[Document], bad: list[Document]) -> None:
    assert all(explain_refusal(each) for each in bad)
    assert learn_baseline([*bad, *found]) == learn_baseline(found)


@settings(max_examples=60)
@given(documents, documents)
def test_nothing_new_changes_nothing(first: list[Document], second: list[Document]) -> None:
    once = learn_baseline(second, learn_baseline(first))
    assert learn_baseline([*second, *first], once) == once


@settings(max_examples=40)
@given(st.lists(documents, max_size=6))
def test_a_level_never_runs_away(batches: list[list[Document]]) -> None:
    baseline = Baseline()
    for batch in batches:
        levels = {(entry.key, entry.software): compute_level(entry) for entry in baseline.entries}
        baseline = learn_baseline(batch, baseline)
        for entry in baseline.entries:
            was, now = levels.get((entry.key, entry.software)), compute_level(entry)
            if was and now:
                assert abs(now.usual / was.usual - 1) <= DRIFT_PER_LEARN + 1e-9
            if now and entry.first:
                assert abs(now.usual / entry.first - 1) <= DRIFT_IN_ALL + 1e-9


@given(documents)
def test_a_baseline_survives_its_file(found: list[Document]) -> None:
    baseline = learn_baseline(found)
    assert msgspec.json.decode(msgspec.json.encode(baseline), type=Baseline) == baseline


def test_a_node_counts_once_by_its_newest_document() -> None:
    (entry,) = learn_baseline(
        [document("n1", [10.0, 12.0], at=1), document("n1", [20.0], at=2), document("n2", [11.0])]
    ).entries
    assert entry.nodes == {"n1": NodeObservation(2.0, (20.0,)), "n2": NodeObservation(1.0, (11.0,))}
    assert compute_level(entry) is None


def test_few_slow_nodes_do_not_move_the_level() -> None:
    slow = [document(f"slow{i}", [50.0] * 8) for i in range(4)]
    assert usual(learn_baseline([*fleet(100.0, 1.0), *slow])) == 100.0


def test_a_fleet_that_slows_is_followed_slowly_and_not_far() -> None:
    baseline = learn_baseline(fleet(100.0, 1.0))
    reached = []
    for step in range(2, 12):
        baseline = learn_baseline(fleet(80.0, float(step)), baseline)
        reached.append(usual(baseline))
    assert reached[0] == pytest.approx(98.0)
    assert reached[1] == pytest.approx(96.04)
    assert reached[-1] == pytest.approx(90.0)
    assert "learn with --accept" in list_held_levels(baseline)[0]
    assert usual(learn_baseline([], baseline, accept=True)) == usual(baseline)
    accepted = learn_baseline(fleet(80.0, 11.0), baseline, accept=True)
    assert list_moved_levels(baseline, accepted) == [
        "NVIDIA H200: matmul_repeat product_rate (bf16 8192): from 90 to 80 TFLOP/s"
    ]
    assert usual(accepted) == 80.0
    assert list_held_levels(accepted) == []


def test_a_step_that_will_be_followed_says_so() -> None:
    baseline = learn_baseline(fleet(95.0, 2.0), learn_baseline(fleet(100.0, 1.0)))
    assert "it moves further" in list_held_levels(baseline)[0]


DAY_S = 86_400.0


def test_levels_that_the_documents_do_not_speak_of_are_not_accepted() -> None:
    other = rate(1.0, setting="fp8 8192")
    baseline = learn_baseline([*fleet(100.0, 1.0), *(document(f"n{i}", [100.0], 1.0, figure=other) for i in range(5))])
    sagged = [*fleet(80.0, 2.0), *(document(f"n{i}", [80.0], 2.0, figure=other) for i in range(5))]
    baseline = learn_baseline(sagged, baseline)
    accepted = learn_baseline(fleet(80.0, 3.0), baseline, accept=True)
    assert [(e.setting, at.usual) for e in accepted.entries if (at := compute_level(e))] == [
        ("bf16 8192", 80.0),
        ("fp8 8192", pytest.approx(98.0)),
    ]
    assert len(list_moved_levels(baseline, accepted)) == 1


def test_a_node_that_failed_since_teaches_nothing() -> None:
    passed, failed = document("bad", [50.0], 5.0), document("bad", [50.0], 9.0, verdict=Verdict.FAIL)
    for order in ([passed, failed], [failed, passed]):
        assert learn_baseline(order).entries == ()
        one_by_one = Baseline()
        for each in order:
            one_by_one = learn_baseline([each], one_by_one)
        assert one_by_one == learn_baseline(order)
    assert explain_outdated(learn_baseline([failed]), passed) == "bad: it failed in a later run"
    again = document("bad", [100.0], 10.0)
    (entry,) = learn_baseline([passed, failed, again]).entries
    assert entry.nodes == {"bad": NodeObservation(10.0, (100.0,))}
    assert explain_outdated(learn_baseline([failed]), again) == ""


def test_a_failure_takes_out_only_what_came_before_it() -> None:
    baseline = learn_baseline([*fleet(100.0, 8.0), document("n1", [1.0], 7.0, verdict=Verdict.FAIL)])
    assert len(baseline.entries[0].nodes) == 5
    (entry,) = learn_baseline([document("n1", [1.0], 8.0, verdict=Verdict.FAIL)], baseline).entries
    assert sorted(entry.nodes) == ["n0", "n2", "n3", "n4"]
    failed_all = learn_baseline([document(f"n{i}", [1.0], 9.0, verdict=Verdict.FAIL) for i in range(5)], baseline)
    assert [(e.nodes, e.first) for e in failed_all.entries] == [({}, 100.0)]  # where it began is not lost with them
    assert usual(learn_baseline(fleet(50.0, 10.0), failed_all)) == pytest.approx(98.0)


def test_a_document_from_the_future_teaches_nothing() -> None:
    assert "ahead of this clock" in explain_refusal(document("n1", [1.0], 2 * DAY_S + 1.0), now=DAY_S)
    assert explain_refusal(document("n1", [1.0], 2 * DAY_S - 1.0), now=DAY_S) == ""
    assert learn_baseline([document("n1", [1.0], 9 * DAY_S)], now=DAY_S) == Baseline()
    failed = document("n1", [1.0], 9 * DAY_S, verdict=Verdict.FAIL)
    assert learn_baseline([failed, document("n1", [1.0])], now=DAY_S) == learn_baseline([document("n1", [1.0])])


def test_what_is_kept_from_the_future_gives_way() -> None:
    poisoned = learn_baseline(
        [document("n1", [1.0], 900 * DAY_S), document("n1", [1.0], 950 * DAY_S, verdict=Verdict.FAIL)]
    )
    poisoned = learn_baseline([document("n2", [1.0], 900 * DAY_S)], poisoned)
    (entry,) = learn_baseline([document("n1", [5.0], DAY_S), document("n2", [6.0], DAY_S)], poisoned, now=DAY_S).entries
    assert entry.nodes == {"n1": NodeObservation(DAY_S, (5.0,)), "n2": NodeObservation(DAY_S, (6.0,))}
    later = learn_baseline([document("n3", [7.0], DAY_S), document("n2", [6.0], DAY_S)], poisoned)
    assert later.entries[0].nodes["n2"].at == 900 * DAY_S


def test_the_future_pushes_out_nobody() -> None:
    stacks = [[document("n1", [1.0], 900 * DAY_S + at, software={"driver": f"{at}"})] for at in range(3)]
    baseline = functools.reduce(lambda was, new: learn_baseline(new, was), stacks, Baseline())
    now = learn_baseline([document("n1", [1.0], DAY_S, software={"driver": "580"})], baseline, now=DAY_S)
    assert [entry.software for entry in now.entries] == ["driver 0", "driver 1", "driver 580"]
    crowd = learn_baseline(document(f"n{i}", [1.0], 900 * DAY_S) for i in range(NODES_KEPT))
    (entry,) = learn_baseline([document("new", [1.0], DAY_S)], crowd, now=DAY_S).entries
    assert "new" in entry.nodes


def test_a_node_counts_once_under_two_names() -> None:
    short, long = document("n1", [10.0] * 8, 1.0), document("n1.cluster", [12.0] * 8, 2.0, machine="n1")
    for order in ([short, long], [long, short]):
        one_by_one = Baseline()
        for each in order:
            one_by_one = learn_baseline([each], one_by_one)
        (entry,) = one_by_one.entries
        assert entry.nodes == {"n1.cluster": NodeObservation(2.0, (12.0,) * 8)}
        assert list(one_by_one.machines) == ["n1.cluster"]
    (entry,) = learn_baseline([short, long, document("n1", [11.0] * 8, 3.0)]).entries
    assert entry.nodes == {"n1": NodeObservation(3.0, (11.0,) * 8)}
    assert learn_baseline([long, document("n1", [1.0] * 8, 3.0, verdict=Verdict.FAIL)]).entries == ()


def test_a_spare_that_moved_makes_no_machine_of_two() -> None:
    lent = document("n2", [10.0] * 8, 2.0)
    devices = (document("n1", [10.0], 1.0).devices[0], *lent.devices[1:])
    (entry,) = learn_baseline([document("n1", [10.0] * 8, 1.0), msgspec.structs.replace(lent, devices=devices)]).entries
    assert sorted(entry.nodes) == ["n1", "n2"]


def test_devices_without_uuids_make_no_machine() -> None:
    bare = [
        msgspec.structs.replace(each, devices=tuple(msgspec.structs.replace(d, uuid="") for d in each.devices))
        for each in fleet(100.0, 1.0)
    ]
    assert len(learn_baseline(bare).entries[0].nodes) == 5


def test_a_node_is_forgotten() -> None:
    baseline = learn_baseline([*fleet(100.0, 1.0), document("n1", [1.0], 5.0, verdict=Verdict.FAIL)])
    without = forget_node(baseline, "n2")
    assert sorted(without.entries[0].nodes) == ["n0", "n3", "n4"]
    assert sorted(without.machines) == ["n0", "n1", "n3", "n4"]
    assert forget_node(without, "n2") == without
    assert forget_node(learn_baseline([document("n1", [1.0])]), "n1") == Baseline()


def test_an_entry_that_no_node_taught_says_nothing() -> None:
    hollow = BaselineEntry(product="P", test="t", figure="f", setting="", unit="GB/s", nodes={})
    baseline = learn_baseline([document("n1", [1.0])], Baseline(entries=(hollow,)))
    assert [entry.product for entry in baseline.entries] == ["NVIDIA H200"]


def test_a_node_without_a_known_product_teaches_nothing() -> None:
    assert learn_baseline([document("n1", [1.0], product="")]) == Baseline()


def test_only_results_that_passed_teach() -> None:
    found = document("n1", [1.0, 2.0])
    skipped = msgspec.structs.replace(found.results[0], outcome=Outcome.NOT_APPLICABLE)
    (entry,) = learn_baseline([msgspec.structs.replace(found, results=(skipped, found.results[1]))]).entries
    assert entry.nodes["n1"].values == (2.0,)


def test_an_entry_keeps_its_newest_nodes() -> None:
    many = [document(f"n{i}", [100.0], at=float(i)) for i in range(NODES_KEPT + 3)]
    (entry,) = learn_baseline(many).entries
    assert len(entry.nodes) == NODES_KEPT
    assert "n0" not in entry.nodes
    assert f"n{NODES_KEPT + 2}" in entry.nodes


def test_each_software_has_its_own_level_and_old_ones_go() -> None:
    baseline = Baseline()
    for at, driver in enumerate(("550", "560", "570", "580")):
        new = [document(f"n{i}", [100.0 - at], float(at), software={"driver": driver}) for i in range(4)]
        baseline = learn_baseline(new, baseline)
    assert [(e.software, e.first, e.before) for e in baseline.entries] == [
        ("driver 560", 99.0, 0.0),
        ("driver 570", 98.0, 0.0),
        ("driver 580", 97.0, 0.0),
    ]


def test_another_unit_begins_anew() -> None:
    before = learn_baseline([document("n1", [1.0])])
    (entry,) = learn_baseline([document("n2", [1000.0], figure=rate(1.0, unit="GFLOP/s"))], before).entries
    assert (entry.unit, list(entry.nodes)) == ("GFLOP/s", ["n2"])


@given(st.lists(st.lists(st.floats(min_value=1.0, max_value=1000.0), min_size=1, max_size=8), min_size=4, max_size=9))
def test_a_node_is_left_out_wholly(nodes: Sequence[Sequence[float]]) -> None:
    def entry(chosen: Sequence[Sequence[float]]) -> BaselineEntry:
        seen = {f"n{i}": NodeObservation(1.0, tuple(each)) for i, each in enumerate(chosen)}
        return BaselineEntry(product="P", test="t", figure="f", setting="", unit="GB/s", nodes=seen)

    without = compute_level(entry(nodes), without={f"n{len(nodes) - 1}"})
    assert without == compute_level(entry(nodes[:-1]))
    assert without
    assert without.usual == statistics.median(statistics.median(each) for each in nodes[:-1])
