from __future__ import annotations

import itertools
import re
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.plan import (
    JOIN_WATCHDOG_S,
    LEVELS,
    SPECS,
    Injection,
    PlanError,
    Scope,
    build_plan,
    check_devices,
    compute_watchdog_s,
)
from preflight.results import Outcome, Result, Verdict
from preflight.run_verdict import judge_run

TESTS = ("gpu_state", "memory_pattern", "matmul_repeat")


def result(test: str, outcome: Outcome, reason: str = "", *, misconfigured: bool = False) -> Result:
    return Result(test=test, outcome=outcome, reason=reason, misconfigured=misconfigured)


def test_a_level_runs_its_tests_in_order() -> None:
    assert tuple(spec.test for spec in build_plan("gate").specs) == LEVELS["gate"]
    assert tuple(test for test in LEVELS["gate"] if test in TESTS) == TESTS


def test_every_test_of_every_level_exists_and_can_be_made_to_fail() -> None:
    for test in itertools.chain(*LEVELS.values()):
        assert SPECS[test].faults
        assert SPECS[test].watchdog_s > 0


def test_only_leaves_the_others_out_and_keeps_the_order() -> None:
    chosen = build_plan("gate", only=["matmul_repeat", "gpu_state"])
    assert [spec.test for spec in chosen.specs] == ["gpu_state", "matmul_repeat"]


def test_a_watchdog_can_be_set_for_one_test() -> None:
    limits = {spec.test: spec.watchdog_s for spec in build_plan("gate", watchdogs={"gpu_state": 2.5}).specs}
    assert limits["gpu_state"] == 2.5
    assert limits["matmul_repeat"] == 30
    assert build_plan("gate", watchdogs={"peer_links": 500}).specs[-2].watchdog_s == 500


@pytest.mark.parametrize(
    ("level", "only", "inject", "says"),
    [
        ("gat", [], [], "no such level: 'gat'; use one of gate, standard, burn-in"),
        ("gate", ["memory"], [], "no such test in level gate: 'memory'"),
        ("gate", [], ["memory_pattern"], "the faults of memory_pattern are .*hang, crash"),
        ("gate", [], ["memory_pattern:explode"], "the faults of memory_pattern are .*hang, crash"),
        ("gate", [], ["gpu_state:hang@cpu:0"], "gpu_state tests the node; leave out @cpu:0"),
        (
            "gate",
            ["gpu_state"],
            ["memory_pattern:hang"],
            "'memory_pattern' is not selected; the selected tests are gpu_state",
        ),
        ("gate", [], ["gpu_state:lost", "gpu_state:hang"], "only one fault per test"),
    ],
)
def test_a_senseless_request_is_refused_with_the_valid_words(
    level: str, only: list[str], inject: list[str], says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        build_plan(level, only, inject)


GOOD = (Outcome.PASS, Outcome.NOT_APPLICABLE)
OPEN = (Outcome.ERROR, Outcome.NOT_RUN)
BAD = (Outcome.FAIL, Outcome.HANG)


def expected(outcomes: tuple[Outcome, ...]) -> Verdict:
    if any(outcome in BAD for outcome in outcomes):
        return Verdict.FAIL
    if any(outcome in OPEN for outcome in outcomes) or Outcome.PASS not in outcomes:
        return Verdict.INCONCLUSIVE
    return Verdict.PASS


@pytest.mark.parametrize("outcomes", list(itertools.product(Outcome, repeat=3)))
def test_every_combination_of_outcomes(outcomes: tuple[Outcome, ...]) -> None:
    verdict, reasons = judge_run(TESTS, [result(t, o) for t, o in zip(TESTS, outcomes, strict=True)])
    assert verdict is expected(outcomes)
    assert bool(reasons) is (verdict is not Verdict.PASS)


def test_a_test_without_a_result_never_passes() -> None:
    verdict, reasons = judge_run(TESTS, [result("gpu_state", Outcome.PASS)])
    assert verdict is Verdict.INCONCLUSIVE
    assert reasons == ("memory_pattern: no result", "matmul_repeat: no result")


def test_nothing_at_all_proves_nothing() -> None:
    assert judge_run((), ())[0] is Verdict.INCONCLUSIVE


def test_what_a_person_must_put_right_outweighs_what_is_open_but_not_a_failure() -> None:
    missing = result("matmul_repeat", Outcome.NOT_RUN, "no torch", misconfigured=True)
    open_ = result("memory_pattern", Outcome.ERROR, "busy")
    assert judge_run(TESTS, [missing, open_]) == (Verdict.MISCONFIGURED, ("matmul_repeat: no torch",))
    assert judge_run(TESTS, [missing, result("gpu_state", Outcome.FAIL, "lost")])[0] is Verdict.FAIL


def test_exit_codes() -> None:
    assert {verdict: verdict.exit_code for verdict in Verdict} == {
        Verdict.PASS: 0,
        Verdict.FAIL: 1,
        Verdict.MISCONFIGURED: 2,
        Verdict.INCONCLUSIVE: 3,
    }


results_of_tests = st.lists(
    st.builds(
        Result,
        test=st.sampled_from(TESTS),
        outcome=st.sampled_from(Outcome),
        device=st.sampled_from(["", "cuda:0", "cuda:1"]),
        reason=st.sampled_from(["", "a", "b"]),
        remarks=st.lists(st.text(max_size=3), max_size=2).map(tuple),
        misconfigured=st.booleans(),
    ),
    max_size=6,
)
ORDER = (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.MISCONFIGURED, Verdict.FAIL)


@given(results_of_tests, st.randoms(use_true_random=False))
def test_a_verdict_depends_on_neither_order_nor_remarks_and_has_reasons_unless_it_is_a_pass(
    results: list[Result], random: Random
) -> None:
    verdict, reasons = judge_run(TESTS, results)
    bare = [msgspec.structs.replace(r, remarks=()) for r in random.sample(results, len(results))]
    assert judge_run(TESTS, bare)[0] is verdict
    assert bool(reasons) is (verdict is not Verdict.PASS)
    assert len(set(reasons)) == len(reasons)


@given(results_of_tests, st.sampled_from(TESTS))
def test_a_further_bad_result_never_makes_a_verdict_better(results: list[Result], test: str) -> None:
    before, _ = judge_run(TESTS, results)
    for outcome in (*BAD, *OPEN):
        after, _ = judge_run(TESTS, [*results, result(test, outcome)])
        assert after is not Verdict.PASS
        assert ORDER.index(after) >= ORDER.index(before) or before is Verdict.INCONCLUSIVE


@given(results_of_tests)
def test_a_device_without_a_result_never_passes(results: list[Result]) -> None:
    on_first = [msgspec.structs.replace(r, device="cuda:0", outcome=Outcome.PASS) for r in results]
    verdict, reasons = judge_run((), on_first, {"memory_pattern": ("cuda:0", "cuda:7")})
    assert verdict is not Verdict.PASS
    assert verdict is Verdict.MISCONFIGURED or "memory_pattern on cuda:7: no result" in reasons


def test_tests_that_say_the_same_of_a_device_share_a_sentence() -> None:
    busy = [
        Result(test=test, outcome=Outcome.NOT_RUN, reason="GPU 0 is busy", misconfigured=True) for test in TESTS[1:]
    ]
    assert judge_run(TESTS, busy)[1] == ("memory_pattern, matmul_repeat: GPU 0 is busy",)


def test_a_fault_is_committed_where_it_is_asked_for() -> None:
    chosen = build_plan("gate", inject=["memory_pattern:bit_flip@cuda:3", "matmul_repeat:nan", "gpu_state:crash"])
    assert chosen.faults == {
        "memory_pattern": Injection("bit_flip", "cuda:3"),
        "matmul_repeat": Injection("nan"),
        "gpu_state": Injection("crash"),
    }
    check_devices(chosen, ["cuda:0", "cuda:3"])
    check_devices(chosen, [])  # nothing is known of them
    with pytest.raises(PlanError, match="no such device; use one of cuda:0, cuda:1"):
        check_devices(chosen, ["cuda:0", "cuda:1"])


def test_a_hang_is_known_at_gate_while_a_prolog_still_waits_and_elsewhere_later() -> None:
    root = Path(__file__).parents[3]
    waits_s = {
        float(found)
        for name in ("prolog.sh", "prolog.conf")
        for found in re.findall(r"^SECONDS_MAX=(\d+)", (root / "deploy" / "slurm" / name).read_text(), re.MULTILINE)
    }
    (slurm_waits_s,) = re.findall(
        r"^PrologEpilogTimeout=(\d+)", (root / "deploy/slurm/slurm.conf.sample").read_text(), re.MULTILINE
    )
    gate = [spec for spec in build_plan("gate").specs if spec.scope is not Scope.NODE]
    others_s = sum(spec.seconds["gate"] for spec in gate)
    assert len(waits_s) == 1
    assert (
        max(JOIN_WATCHDOG_S, *(spec.watchdog_s for spec in gate)) + others_s + 20 <= max(waits_s) < float(slurm_waits_s)
    )  # to start, to end
    assert all(spec.watchdog_s >= 15 * spec.seconds["gate"] for spec in gate)
    for name in ("gpu_state", "software"):
        assert compute_watchdog_s(SPECS[name], "gate") == SPECS[name].watchdog_s
    assert [spec.watchdog_s for spec in build_plan("standard").specs] == [
        SPECS[t].watchdog_s for t in LEVELS["standard"]
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_takes_about_what_it_promises(level: str) -> None:
    seconds = sum(SPECS[test].seconds[level] for test in LEVELS[level])
    assert seconds <= {"gate": 10, "standard": 125, "burn-in": 1800}[level]
    for test in LEVELS[level]:
        assert SPECS[test].seconds[level] < compute_watchdog_s(SPECS[test], level), test
