"""The rule over several sources, scene by scene, and what must hold in all of them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.expectations.baseline_learning import learn_baseline
from preflight.expectations.bounds import SourceBound, SourceWeight, misses_bound
from preflight.expectations.device_history import History, record_run
from preflight.expectations.fleet_baseline import Baseline
from preflight.expectations.product_table import Product, ProductRow, ProductTable
from preflight.expectations.result_judgement import Knowledge, apply_expectations
from preflight.expectations.source_precedence import weigh_bounds
from preflight.results import Expectation, Figure, Outcome, Result, Source
from tests.unit.preflight.expect.runs import H200, NAME, SETTING, TEST, devices, document, rate, results

ROW = ProductRow(
    test=TEST, figure=NAME, setting="bf16 *", unit="TFLOP/s", usual=790, worst=700, peak=989, source="measured on one"
)
TABLE = ProductTable(
    products=(Product(product="H200 SXM", names=(H200,), memory=4800, power=700, source="sheet", rows=(ROW,)),)
)
NODE = "judged"


def fleet(nodes: int, value: float, spread: float = 0.01, driver: str = "") -> Baseline:
    """Every node at `value`, a little apart."""
    apart = (value * (1 + spread * (i - (nodes - 1) / 2) / max(1, nodes - 1)) for i in range(nodes))
    software = {"driver": driver} if driver else None
    return learn_baseline(
        document(f"other{i}", [reached] * 8, at=float(i), software=software) for i, reached in enumerate(apart)
    )


def history(value: float, runs: int = 5) -> History:
    past = History()
    for run in range(runs):
        past = record_run(past, document(NODE, [value] * 8, at=float(run + 1)))
    return past


def moved(nodes: int, value: float, to: float) -> Baseline:
    """A fleet that has learned `value`, and whose nodes reach `to` by now."""
    new = [document(f"other{i}", [to] * 8, at=99.0) for i in range(nodes)]
    return learn_baseline(new, fleet(nodes, value))


def mixed(most: int, few: int, reached: float, slower: float) -> Baseline:
    """A fleet of which `few` nodes reach `slower` only."""
    values = [reached * (1 + i / 2000) for i in range(most)] + [slower * (1 + i / 2000) for i in range(few)]
    return learn_baseline(document(f"other{i}", [value] * 8) for i, value in enumerate(values))


def known(**what: object) -> Knowledge:
    return Knowledge(**{"node": NODE, "table": ProductTable(), **what})  # type: ignore[arg-type] - each by its own type


def judged(values: list[float], knowledge: Knowledge) -> tuple[Result, ...]:
    return apply_expectations(results(values), devices(len(values), node=NODE), knowledge)


SAME = [790.0, 791, 789, 790, 788, 792, 790, 790]
ONE_SLOW = [*SAME[:-1], 690.0]
ALL_SLOW = [value * 0.85 for value in SAME]
ALONE = [600.0]
# Of the same platform, but with another figure: the platform has been measured, and this figure has no bound by the fleet.
OTHER_FIGURE = learn_baseline(document(f"other{i}", [51.0] * 8, figure=rate(51.0, "fp32 8192")) for i in range(3))
PASS, FAIL, ERROR = Outcome.PASS, Outcome.FAIL, Outcome.ERROR

SCENES: dict[str, tuple[list[float], Knowledge, Outcome]] = {
    "nothing known": (ALONE, known(), PASS),
    "all as they should be": (SAME, known(table=TABLE, baseline=fleet(12, 790), history=history(790)), PASS),
    "one slow among siblings": (ONE_SLOW, known(), ERROR),
    "a little slow among siblings": ([*SAME[:-1], 710.0], known(), PASS),
    "slow among siblings, and under the table": (ONE_SLOW, known(table=TABLE), ERROR),
    "slow among siblings, and under the table, on a measured platform": (
        ONE_SLOW,
        known(table=TABLE, baseline=OTHER_FIGURE),
        FAIL,
    ),
    "a little slow among siblings, the fleet knows how they scatter": (
        [*SAME[:-1], 710.0],
        known(baseline=fleet(3, 790)),
        FAIL,
    ),
    "one slow among siblings, the fleet is faster too": (ONE_SLOW, known(baseline=fleet(12, 790)), FAIL),
    "slower than its siblings, but as fast as the fleet": (
        [870.0] * 7 + [785.0],
        known(baseline=fleet(12, 790, spread=0.1)),
        PASS,
    ),
    "two slow of three others: no siblings": ([790.0, 700, 700], known(), PASS),
    "all under the table, nobody else knows": (ALL_SLOW, known(table=TABLE), ERROR),
    "far under the table, nobody else knows": ([250.0], known(table=TABLE), ERROR),
    "far under the table, on a measured platform": ([250.0], known(table=TABLE, baseline=OTHER_FIGURE), FAIL),
    "all under the table, and under three nodes": (ALL_SLOW, known(table=TABLE, baseline=fleet(3, 790)), FAIL),
    "all under the table, three nodes are the same": (ALL_SLOW, known(table=TABLE, baseline=fleet(3, 671)), PASS),
    "all under the table, the fleet is the same": (ALL_SLOW, known(table=TABLE, baseline=fleet(12, 671)), PASS),
    "far under the table, the fleet is the same": ([250.0], known(table=TABLE, baseline=fleet(12, 250)), PASS),
    "under three nodes, the table is content": ([710.0], known(table=TABLE, baseline=fleet(3, 790)), ERROR),
    "under the fleet, the table is content": ([710.0], known(table=TABLE, baseline=fleet(12, 790)), FAIL),
    "under a fleet of other software": (ALL_SLOW, known(baseline=fleet(12, 790, driver="570")), PASS),
    "under a fleet of other software, and the table": (
        ALL_SLOW,
        known(table=TABLE, baseline=fleet(12, 790, driver="570")),
        ERROR,
    ),
    "under a fleet of other software, slower than it was": (
        ALL_SLOW,
        known(history=history(790), baseline=fleet(12, 790, driver="570")),
        ERROR,
    ),
    "under the level of a fleet that has moved": (ALL_SLOW, known(baseline=moved(12, 790, 690)), ERROR),
    "under a fleet that has moved": ([600.0], known(baseline=moved(12, 790, 690)), FAIL),
    "siblings miss the table too": ([650.0] * 7 + [585.0], known(table=TABLE), ERROR),
    "siblings miss the table by far too": (
        [250.0] * 7 + [210.0],
        known(table=TABLE, baseline=OTHER_FIGURE),
        FAIL,
    ),
    "as slow as a third of the fleet": (ALL_SLOW, known(baseline=mixed(24, 12, 790, 671)), ERROR),
    "as slow as a third of the fleet, under the table": (
        ALL_SLOW,
        known(table=TABLE, baseline=mixed(24, 12, 790, 671)),
        FAIL,
    ),
    "as slow as two nodes": (ALL_SLOW, known(baseline=mixed(24, 2, 790, 671)), FAIL),
    "slower than the slow third of a fleet": ([600.0], known(baseline=mixed(24, 12, 790, 671)), FAIL),
    "under a fleet of which many are nearer than its bound is wide": (
        [560.0],
        known(baseline=fleet(40, 790, spread=0.1)),
        FAIL,
    ),
    "a sliver of what a scattered fleet reaches": ([8.0], known(baseline=fleet(12, 790, spread=1.0)), ERROR),
    "a third of what a scattered fleet reaches": ([263.0], known(baseline=fleet(12, 790, spread=1.0)), PASS),
    "a sliver of what its scattered siblings reach": ([400.0, 1200, 500, 1100, 800, 600, 1000, 8], known(), ERROR),
    "under the fleet, no table": (ALL_SLOW, known(baseline=fleet(12, 790)), FAIL),
    "slower than it was, else unknown": (ALL_SLOW, known(history=history(790)), PASS),
    "slower than it was, and under the table": (ALL_SLOW, known(table=TABLE, history=history(790)), ERROR),
    "slower than it was, and under the table, on a measured platform": (
        ALL_SLOW,
        known(table=TABLE, history=history(790), baseline=OTHER_FIGURE),
        FAIL,
    ),
    "slower than it was, but as the fleet": (ALL_SLOW, known(history=history(790), baseline=fleet(12, 671)), PASS),
    "above the maker's peak": ([1200.0], known(table=TABLE), ERROR),
    "above the maker's peak, as the fleet": ([1200.0], known(table=TABLE, baseline=fleet(12, 1190)), PASS),
    "no number": ([float("nan")], known(), ERROR),
    "endless": ([float("inf")], known(baseline=fleet(12, 790)), ERROR),
    "nothing a second": ([0.0], known(), ERROR),
}


@pytest.mark.parametrize("scene", SCENES)
def test_each_scene_ends_as_it_must(scene: str) -> None:
    values, knowledge, outcome = SCENES[scene]
    assert judged(values, knowledge)[-1].outcome is outcome


def test_what_is_said_in_every_scene(golden: Callable[[str, str], None]) -> None:
    lines = []
    for scene, (values, knowledge, _) in SCENES.items():
        last = judged(values, knowledge)[-1]
        lines += [f"{scene}: {last.outcome.value}", f"  because: {last.reason}" if last.reason else "  no reason"]
        lines += [f"  remark: {remark}" for remark in last.remarks]
        for figure in last.figures:
            shown = "none" if figure.margin is None else f"{figure.margin:.4f}"
            lines.append(f"  margin {shown}, by {', '.join(e.source.value for e in figure.expected) or 'nobody'}")
    golden("preflight/expectations.txt", "\n".join(lines) + "\n")


def test_a_healthy_minority_with_another_part_is_no_failure() -> None:
    found = judged([671.0] * 8, known(baseline=mixed(24, 12, 790, 671)))
    assert {result.outcome for result in found} == {ERROR}
    assert "12 of these nodes also reach about 672.8: check whether they have a different part" in found[0].reason


def test_a_latency_has_minorities_too() -> None:
    late = Figure(name="latency", value=1.0, unit="us", setting=SETTING)
    values = [10.0] * 24 + [20.0] * 12
    slow = learn_baseline(document(f"other{i}", [value] * 8, figure=late) for i, value in enumerate(values))
    assert apply_expectations(results([20.0], late), devices(1), known(baseline=slow))[0].outcome is ERROR
    assert apply_expectations(results([30.0], late), devices(1), known(baseline=slow))[0].outcome is FAIL


def test_only_the_slow_one_is_named() -> None:
    found = judged(ONE_SLOW, known(baseline=fleet(3, 790)))
    assert [result.outcome for result in found] == [PASS] * 7 + [FAIL]
    assert "its siblings" in found[-1].reason
    assert found[-1].by_limit


def test_a_limit_fails_nothing_on_a_platform_that_was_not_measured() -> None:
    """Rates by several bounds, and failures that a test reports by a limit of its own."""
    knows = known(table=TABLE, history=history(790))
    assert [result.outcome for result in judged(ONE_SLOW, knows)] == [PASS] * 7 + [ERROR]
    refused = [msgspec.structs.replace(results([790.0])[0], outcome=FAIL, reason="beyond rounding", by_limit=True)]
    (found,) = apply_expectations(refused, devices(1, node=NODE), knows)
    assert (found.outcome, found.by_limit) == (ERROR, True)
    assert found.reason.startswith("beyond rounding. No limit fails a device here")
    (same,) = apply_expectations(refused, devices(1, node=NODE), known(baseline=OTHER_FIGURE))
    assert (same.outcome, same.reason) == (FAIL, "beyond rounding")


def test_what_devices_measure_together_is_one_measurement() -> None:
    """An all-reduce takes as long on every rank: its figures are judged once, by their median."""
    latency = Figure(name="collective_latency", value=1.0, unit="us", setting="all_reduce, 8 ranks, 64 B, nccl")
    measured = [document(f"other{i}", [30.0] * 8, figure=latency) for i in range(12)]
    together = learn_baseline(
        msgspec.structs.replace(each, results=results([30.0] * 8, latency, "collectives")) for each in measured
    )
    knows = known(baseline=together)
    one = apply_expectations(results([30.0] * 7 + [60.0], latency, "collectives"), devices(8, node=NODE), knows)
    assert {result.outcome for result in one} == {PASS}
    assert one[-1].figures[0].value == 60.0
    every = apply_expectations(results([60.0] * 8, latency, "collectives"), devices(8, node=NODE), knows)
    assert {result.outcome for result in every} == {FAIL}


def test_the_judged_node_does_not_speak_for_itself() -> None:
    documents = [document(f"other{i}", [790.0 + i] * 8) for i in range(3)]
    own = [document(NODE, [600.0] * 8, at=float(i)) for i in range(9)]
    judged_by = known(baseline=learn_baseline([*documents, *own]))
    bound = next(e for e in judged([600.0] * 8, judged_by)[0].figures[0].expected if e.source is Source.FLEET)
    assert "3 other nodes, 791" in bound.words


def test_the_judged_node_does_not_speak_for_itself_under_another_name() -> None:
    documents = [document(f"other{i}", [790.0 + i] * 8) for i in range(3)]
    own = document(f"{NODE}.cluster", [600.0] * 8, machine=NODE)
    judged_by = known(baseline=learn_baseline([*documents, own]))
    bound = next(e for e in judged([600.0] * 8, judged_by)[0].figures[0].expected if e.source is Source.FLEET)
    assert "3 other nodes, 791" in bound.words


def test_a_result_that_failed_already_keeps_its_own_reason() -> None:
    failed = tuple(
        msgspec.structs.replace(r, outcome=FAIL, reason="wrong bits") if r.device == "cuda:7" else r
        for r in results(ONE_SLOW)
    )
    found = apply_expectations(failed, devices(8), known())
    assert (found[-1].outcome, found[-1].reason) == (FAIL, "wrong bits")
    assert found[-1].figures[0].margin is not None


def test_a_demand_of_the_test_itself_decides_whatever_the_fleet_says() -> None:
    demand = Expectation(source=Source.EXACT, words="the maker's rule", at_least=800)
    own = tuple(
        msgspec.structs.replace(r, figures=tuple(msgspec.structs.replace(f, expected=(demand,)) for f in r.figures))
        for r in results([790.0])
    )
    (found,) = apply_expectations(own, devices(1), known(baseline=fleet(12, 790)))
    assert found.outcome is FAIL
    assert "the maker's rule" in found.reason


def test_another_products_fleet_says_nothing() -> None:
    other = learn_baseline(document(f"n{i}", [900.0] * 8, product="NVIDIA H200 NVL") for i in range(12))
    assert judged(SAME, known(baseline=other))[0].figures[0].margin is not None  # by siblings
    assert all(e.source is Source.SIBLINGS for e in judged(SAME, known(baseline=other))[0].figures[0].expected)


rates = st.floats(min_value=1.0, max_value=2000.0)
bounds = st.dictionaries(
    st.sampled_from([Source.PHYSICAL, Source.SKU, Source.SIBLINGS, Source.FLEET, Source.HISTORY]),
    st.tuples(rates, st.floats(min_value=1.0, max_value=3.0), st.sampled_from(SourceWeight)),
)  # the least that is good, how much more is usual, what the word is worth
Drawn = dict[Source, tuple[float, float, SourceWeight]]


def _bounds(drawn: Drawn) -> dict[Source, SourceBound]:
    return {
        source: SourceBound(
            expectation=Expectation(source=source, words="", at_least=least), usual=least * more, witnesses=9, word=word
        )
        for source, (least, more, word) in drawn.items()
    }


@given(rates, bounds)
def test_a_margin_is_below_zero_exactly_if_something_follows(value: float, drawn: Drawn) -> None:
    ruling = weigh_bounds(rate(value), _bounds(drawn))
    bad = ruling.figure.margin is not None and ruling.figure.margin < 0
    assert bad is (ruling.outcome is not PASS)
    assert bool(ruling.reason) is (ruling.outcome is not PASS)
    counting = [e for e in ruling.figure.expected if e.fails]
    assert any(misses_bound(value, e) for e in counting) is bad


@given(rates, bounds)
def test_a_content_fleet_leaves_only_siblings_to_fail_by(value: float, drawn: Drawn) -> None:
    given_bounds = _bounds(drawn)
    ruling = weigh_bounds(rate(value), given_bounds)
    fleet_bound = given_bounds.get(Source.FLEET)
    if fleet_bound and not misses_bound(value, fleet_bound.expectation) and ruling.outcome is not PASS:
        assert misses_bound(value, given_bounds[Source.SIBLINGS].expectation)


@given(rates, rates, bounds)
def test_a_faster_device_is_never_judged_worse(one: float, other: float, drawn: Drawn) -> None:
    order = [PASS, ERROR, FAIL]
    slow, fast = (weigh_bounds(rate(value), _bounds(drawn)).outcome for value in sorted((one, other)))
    assert order.index(fast) <= order.index(slow)


@settings(max_examples=50)
@given(st.lists(rates, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_results_changes_nothing(values: list[float], chance: object) -> None:
    found = results(values)
    shuffled = list(found)
    chance.shuffle(shuffled)  # type: ignore[attr-defined] - hypothesis' Random
    by_device = {r.device: r for r in apply_expectations(shuffled, devices(len(values)), known(table=TABLE))}
    assert tuple(by_device[r.device] for r in found) == apply_expectations(
        found, devices(len(values)), known(table=TABLE)
    )


def test_what_cannot_be_compared_meets_no_bound() -> None:
    assert misses_bound(float("nan"), Expectation(source=Source.EXACT, words="", at_least=1.0))
    assert misses_bound(float("nan"), Expectation(source=Source.EXACT, words="", at_most=1.0))


def test_a_latency_is_judged_the_other_way_round() -> None:
    late = Figure(name="latency", value=1.0, unit="us", setting=SETTING)
    found = apply_expectations(results([10.0] * 7 + [12.0], late), devices(8), known())
    assert [r.outcome for r in found] == [PASS] * 7 + [ERROR]
    assert [r.outcome for r in apply_expectations(results([10.0] * 7 + [8.0], late), devices(8), known())] == [PASS] * 8


def test_the_worst_moment_alone_fails_nothing() -> None:
    worst = Figure(name="clock_min", value=1.0, unit="MHz")
    found = apply_expectations(results([1980.0] * 7 + [345.0], worst), devices(8), known())[-1]
    assert found.outcome is PASS
    assert "under 1742, the bound of its siblings" in found.remarks[0]
    past = History()
    for run in range(4):
        past = record_run(past, document(NODE, [1980.0] * 8, at=float(run + 1), figure=worst))
    judged_by_two = apply_expectations(
        results([1980.0] * 7 + [345.0], worst), devices(8, node=NODE), known(history=past)
    )
    assert judged_by_two[-1].outcome is PASS
    assert len(judged_by_two[-1].figures[0].expected) == 2
    room = Figure(name="temperature_margin_min", value=1.0, unit="°C")
    assert apply_expectations(results([20.0] * 7 + [45.0], room), devices(8), known())[-1].remarks == ()


def test_heat_is_a_remark_and_a_count_is_compared_with_nothing() -> None:
    heat = Figure(name="temperature_max", value=1.0, unit="°C")
    hot = apply_expectations(results([60.0] * 7 + [75.0], heat), devices(8), known())[-1]
    assert hot.outcome is PASS
    assert "15 °C over" in hot.remarks[0]
    count = Figure(name="replays", value=1.0, unit="")
    assert apply_expectations(results([0.0] * 7 + [75.0], count), devices(8), known())[-1].figures[0].expected == ()
