"""Each source alone: arithmetic of links, the table of products, siblings, a device's own past."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.baseline_files import load_product_table as table_of
from preflight.expectations import physical_limits
from preflight.expectations.baseline_learning import learn_baseline
from preflight.expectations.device_history import FIRST_KEPT, LAST_KEPT, History, record_run
from preflight.expectations.measurement_keys import (
    BetterDirection,
    compute_spread,
    explain_impossible_value,
    find_better_direction,
    map_device_products,
)
from preflight.expectations.product_table import (
    Product,
    ProductRow,
    ProductTable,
    find_product,
    find_product_row,
    list_table_faults,
)
from preflight.expectations.result_judgement import Knowledge, apply_expectations
from preflight.results import Document, Figure, Outcome, Result, Source
from tests.unit.preflight.expect.runs import devices, document, rate, results

SHIPPED = table_of(None)


@pytest.mark.parametrize(
    ("generation", "width", "gigabytes"),
    [(1, 16, 4.0), (3, 16, 15.754), (4, 16, 31.508), (5, 16, 63.015), (5, 8, 31.508), (6, 16, 118.0)],
)
def test_a_pcie_link_carries_what_its_encoding_leaves(generation: int, width: int, gigabytes: float) -> None:
    assert physical_limits.compute_pcie_rate(generation, width) == pytest.approx(gigabytes, abs=0.001)


def test_the_other_links_too() -> None:
    assert physical_limits.compute_nvlink_rate(18, 25.0) == 450.0
    assert physical_limits.compute_memory_rate(2619.0, 5120) == pytest.approx(
        3352.3, abs=0.1
    )  # an H100's, 3.35 TB/s on its sheet
    assert physical_limits.compute_pcie_rate(7, 16) is None
    assert physical_limits.compute_pcie_rate(5, 0) is None
    assert physical_limits.compute_nvlink_rate(0, 25.0) is None
    assert physical_limits.compute_memory_rate(0.0, 5120) is None


def link(rate_gb_s: float, name: str = "h2d_rate") -> Result:
    figure = Figure(name=name, value=rate_gb_s, unit="GB/s")
    evidence = {"pcie_generation_max": 5, "pcie_width_max": 16}
    return Result(test="host_link", outcome=Outcome.PASS, device="cuda:0", figures=(figure,), evidence=evidence)


@pytest.mark.parametrize(
    ("reached", "outcome"),
    [(55.0, Outcome.PASS), (64.0, Outcome.PASS), (70.0, Outcome.ERROR), (38.0, Outcome.ERROR), (12.0, Outcome.ERROR)],
)
def test_a_link_is_judged_by_what_it_says_of_itself(reached: float, outcome: Outcome) -> None:
    (found,) = apply_expectations([link(reached)], devices(1, "some new GPU"), Knowledge(node="n"))
    assert found.outcome is outcome
    if reached == 70.0:
        assert "more than PCIe 5.0 x16, 63.0 GB/s one way can carry" in found.reason


def test_both_ways_carry_twice() -> None:
    (found,) = apply_expectations([link(100.0, "both_ways_rate")], devices(1), Knowledge())
    assert found.outcome is Outcome.PASS
    (lie,) = apply_expectations([link(140.0, "both_ways_rate")], devices(1), Knowledge())
    assert lie.outcome is Outcome.ERROR


def test_link_and_table_together_fail() -> None:
    measured = learn_baseline(document(f"m{i}", [790.0] * 8) for i in range(3))
    (found,) = apply_expectations([link(38.0)], devices(1), Knowledge(table=SHIPPED, baseline=measured))
    assert found.outcome is Outcome.FAIL
    assert "the hardware's own limit" in found.reason
    assert "the static table" in found.reason


def test_the_shipped_table_has_no_fault() -> None:
    assert list_table_faults(SHIPPED) == []


@pytest.mark.parametrize("product", SHIPPED.products, ids=lambda product: product.product)
def test_a_products_usual_figures_pass_and_nothing_beyond_its_sheet_does(product: Product) -> None:
    for row in product.rows:
        assert row.source
        setting = row.setting.replace("*", "")
        figure = Figure(name=row.figure, value=row.usual, unit=row.unit, setting=setting)
        assert find_product_row(product, row.test, figure) is not None
        (good,) = apply_expectations(
            results([row.usual], figure, row.test), devices(1, product.names[0]), Knowledge(table=SHIPPED)
        )
        assert good.outcome is Outcome.PASS
        assert good.figures[0].margin is not None
        assert good.figures[0].margin > 0
        if row.peak:
            (lie,) = apply_expectations(
                results([row.peak * 1.06], figure, row.test), devices(1, product.names[0]), Knowledge(table=SHIPPED)
            )
            assert lie.outcome is Outcome.ERROR
        assert product.nvlink == 0 or product.nvlinks > 0


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("NVIDIA H200", "H200 SXM"),
        ("nvidia h200 ", "H200 SXM"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA H200 MIG 1g.18gb", None),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM 40 GB"),
        ("Some GPU", None),
        ("", None),
    ],
)
def test_a_product_is_known_by_its_whole_name_only(name: str, product: str | None) -> None:
    found = find_product(SHIPPED, name)
    assert (found.product if found else None) == product


def test_an_unknown_product_fails_nothing() -> None:
    (found,) = apply_expectations(results([0.001]), devices(1, "Some GPU"), Knowledge(table=SHIPPED))
    assert found.outcome is Outcome.PASS
    assert found.figures[0].expected == ()


def test_faults_of_a_table_are_named() -> None:
    good = ProductRow(test="t", figure="f", unit="GB/s", usual=10, worst=9, source="s")
    bad = [
        msgspec.structs.replace(good, unit="W"),
        msgspec.structs.replace(good, worst=11),
        msgspec.structs.replace(good, unit="us", worst=9),
        msgspec.structs.replace(good, usual=0),
        msgspec.structs.replace(good, peak=5),
    ]
    one = Product(product="one", names=("GPU",), memory=1, power=1, source="s", rows=(good, *bad))
    other = Product(product="other", names=("gpu",), memory=1, power=1, source="s")
    found = list_table_faults(ProductTable(products=(one, other)))
    assert len(found) == len(bad) + 1
    assert "also that of one" in found[0]


def test_a_nodes_product_is_its_devices_together() -> None:
    assert map_device_products(devices(8))[""] == "8 x NVIDIA H200"
    assert map_device_products(devices(1, "A") + devices(2, "B"))[""] == "1 x A and 2 x B"
    assert map_device_products(devices(2, ""))[""] == ""
    assert map_device_products(())[""] == ""


def test_siblings_are_forgiven_what_the_fleet_knows_of_scatter() -> None:
    wide = [0.94, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06, 1.0]
    fleet = learn_baseline(document(f"n{i}", [790 * share for share in wide]) for i in range(8))
    odd = [790.0] * 7 + [790 * 0.86]
    assert apply_expectations(results(odd), devices(8), Knowledge())[7].outcome is Outcome.ERROR
    assert apply_expectations(results(odd), devices(8), Knowledge(baseline=fleet))[7].outcome is Outcome.PASS


def test_siblings_need_three_others_and_forgive_their_own_scatter() -> None:
    assert apply_expectations(results([100, 100, 100, 80]), devices(4), Knowledge())[3].outcome is Outcome.ERROR
    assert apply_expectations(results([100, 100, 80]), devices(3), Knowledge())[2].outcome is Outcome.PASS
    assert apply_expectations(results([100, 100, 90.5]), devices(3), Knowledge())[2].outcome is Outcome.PASS
    wild = [100.0, 90, 110, 95, 105, 92, 108, 84]
    assert apply_expectations(results(wild), devices(8), Knowledge())[7].outcome is Outcome.PASS


def test_a_fast_minority_makes_one_look_at_the_rest() -> None:
    found = apply_expectations(results([80.0] * 5 + [100.0] * 3), devices(8), Knowledge())
    assert [r.outcome for r in found] == [Outcome.PASS] * 8
    assert "check whether most of them are slow" in found[7].remarks[0]


def test_own_history_keeps_the_first_and_the_last_runs() -> None:
    past = History()
    for run in range(1, 40):
        past = record_run(past, document("n1", [float(run)], float(run)))
    (found,) = past.pasts
    assert found.first == tuple(float(i) for i in range(1, FIRST_KEPT + 1))
    assert found.last == tuple(float(i) for i in range(40 - LAST_KEPT, 40))
    assert record_run(past, document("n1", [5.0], 39.0)) == past
    assert msgspec.json.decode(msgspec.json.encode(past), type=History) == past


def test_a_replaced_gpu_has_no_past() -> None:
    past = History()
    for run in range(5):
        past = record_run(past, document("n1", [790.0], float(run + 1)))
    new = devices(1, node="spare")
    (found,) = apply_expectations(results([600.0]), new, Knowledge(node="n1", history=past))
    assert found.figures[0].expected == ()
    (same,) = apply_expectations(results([740.0]), devices(1, node="n1"), Knowledge(node="n1", history=past))
    assert [e.source for e in same.figures[0].expected] == [Source.HISTORY]
    assert "6.3% worse than this device's own 5 earlier passes" in same.remarks[0]
    assert record_run(past, document("another node", [1.0], 9.0)).node == "another node"


def test_a_machine_keeps_its_past_under_every_name() -> None:
    past = History()
    for run in range(4):
        past = record_run(past, document("n1", [790.0], float(run + 1)))
    past = record_run(past, document("n1.cluster", [788.0], 5.0, machine="n1"))
    (found,) = past.pasts
    assert found.first == (790.0, 790.0, 790.0, 790.0, 788.0)
    (judged,) = apply_expectations(results([740.0]), devices(1, node="n1"), Knowledge(node="n1.cluster", history=past))
    assert "own 5 earlier passes" in judged.remarks[0]


def test_what_has_no_uuid_keeps_its_past_by_the_name_of_its_node() -> None:
    def bare(node: str, value: float, at: float) -> Document:
        run = document(node, [value], at)
        return msgspec.structs.replace(run, devices=tuple(msgspec.structs.replace(d, uuid="") for d in run.devices))

    past = History()
    for run in range(3):
        past = record_run(past, bare("n1", 790.0, float(run + 1)))
    past = record_run(past, bare("n2", 500.0, 4.0))
    assert [(p.device, p.node, p.first) for p in past.pasts] == [
        ("cuda:0", "n1", (790.0, 790.0, 790.0)),
        ("cuda:0", "n2", (500.0,)),
    ]
    unnamed = tuple(msgspec.structs.replace(d, uuid="") for d in devices(1))
    mine = apply_expectations(results([600.0]), unnamed, Knowledge(node="n1", history=past))[0].figures[0].expected
    assert [e.source for e in mine] == [Source.HISTORY]
    assert (
        apply_expectations(results([600.0]), unnamed, Knowledge(node="n3", history=past))[0].figures[0].expected == ()
    )


def test_a_run_from_the_future_stops_no_history() -> None:
    past = record_run(History(), document("n1", [790.0], 4e9))
    for run in range(3):
        past = record_run(past, document("n1", [780.0], 1e9 + run))
    (found,) = past.pasts
    assert (found.at, found.first) == (1e9 + 2, (790.0, 780.0, 780.0, 780.0))
    assert record_run(past, document("n1", [1.0], 1e9 + 1)) == past


def test_other_software_begins_anew() -> None:
    past = History()
    for run in range(5):
        past = record_run(past, document("n1", [790.0], float(run + 1), software={"driver": "570", "python": "3.11"}))
    upgraded = Knowledge(node="n1", history=past, software="driver 580")
    assert apply_expectations(results([600.0]), devices(1), upgraded)[0].figures[0].expected == ()
    (new,) = record_run(past, document("n1", [600.0], 9.0, software={"driver": "580"})).pasts
    assert (new.software, new.first) == ("driver 580", (600.0,))


@given(
    st.lists(st.floats(min_value=1.0, max_value=1e6), min_size=1, max_size=20), st.floats(min_value=0.01, max_value=100)
)
def test_scatter_does_not_depend_on_the_unit(values: list[float], factor: float) -> None:
    assert compute_spread([v * factor for v in values]) == pytest.approx(compute_spread(values), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 0.0, -1.0])
def test_what_no_measurement_can_be(value: float) -> None:
    assert explain_impossible_value(rate(value))
    assert not explain_impossible_value(rate(1e-9))


def test_a_unit_we_do_not_know_has_no_better() -> None:
    assert find_better_direction("bananas") is BetterDirection.NEITHER
    assert not explain_impossible_value(Figure(name="errors", value=0.0, unit=""))
