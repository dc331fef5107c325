from __future__ import annotations

import itertools

import pytest

from preflight.judge import judge
from preflight.plan import LEVELS, SPECS, PlanError, plan
from preflight.results import Outcome, Result, Verdict

TESTS = ("gpu_state", "memory_pattern", "matmul_repeat")


def result(test: str, outcome: Outcome, reason: str = "", *, misconfigured: bool = False) -> Result:
    return Result(test=test, outcome=outcome, reason=reason, misconfigured=misconfigured)


def test_a_level_runs_its_tests_in_order() -> None:
    assert tuple(spec.test for spec in plan("gate").specs) == LEVELS["gate"]
    assert tuple(test for test in LEVELS["gate"] if test in TESTS) == TESTS


def test_every_test_of_every_level_exists_and_can_be_made_to_fail() -> None:
    for test in itertools.chain(*LEVELS.values()):
        assert SPECS[test].faults
        assert SPECS[test].watchdog_s > 0


def test_only_leaves_the_others_out_and_keeps_the_order() -> None:
    chosen = plan("gate", only=["matmul_repeat", "gpu_state"])
    assert [spec.test for spec in chosen.specs] == ["gpu_state", "matmul_repeat"]


def test_a_watchdog_can_be_set_for_one_test() -> None:
    limits = {spec.test: spec.watchdog_s for spec in plan("gate", watchdogs={"gpu_state": 2.5}).specs}
    assert limits["gpu_state"] == 2.5
    assert limits["matmul_repeat"] == SPECS["matmul_repeat"].watchdog_s


@pytest.mark.parametrize(
    ("level", "only", "inject", "says"),
    [
        ("gat", [], [], "no such level: 'gat'; there is gate, standard, burn-in"),
        ("gate", ["memory"], [], "no such test in level gate: 'memory'"),
        ("gate", [], ["memory_pattern"], "memory_pattern knows .*hang, crash"),
        ("gate", [], ["memory_pattern:explode"], "memory_pattern knows .*hang, crash"),
        ("gate", [], ["gpu_state:hang@cpu:0"], "gpu_state is about the node, leave @cpu:0 out"),
        ("gate", ["gpu_state"], ["memory_pattern:hang"], "'memory_pattern' does not run; gpu_state would"),
        ("gate", [], ["gpu_state:lost", "gpu_state:hang"], "one fault for each test"),
    ],
)
def test_a_senseless_request_is_refused_with_the_valid_words(
    level: str, only: list[str], inject: list[str], says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        plan(level, only, inject)


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
    verdict, reasons = judge(TESTS, [result(t, o) for t, o in zip(TESTS, outcomes, strict=True)])
    assert verdict is expected(outcomes)
    assert bool(reasons) is (verdict is not Verdict.PASS)


def test_a_test_without_a_result_never_passes() -> None:
    verdict, reasons = judge(TESTS, [result("gpu_state", Outcome.PASS)])
    assert verdict is Verdict.INCONCLUSIVE
    assert reasons == ("memory_pattern: no result", "matmul_repeat: no result")


def test_nothing_at_all_proves_nothing() -> None:
    assert judge((), ())[0] is Verdict.INCONCLUSIVE


def test_what_a_person_must_put_right_outweighs_what_is_open_but_not_a_failure() -> None:
    missing = result("matmul_repeat", Outcome.NOT_RUN, "no torch", misconfigured=True)
    open_ = result("memory_pattern", Outcome.ERROR, "busy")
    assert judge(TESTS, [missing, open_]) == (Verdict.MISCONFIGURED, ("matmul_repeat: no torch",))
    assert judge(TESTS, [missing, result("gpu_state", Outcome.FAIL, "lost")])[0] is Verdict.FAIL


def test_exit_codes() -> None:
    assert {verdict: verdict.exit_code for verdict in Verdict} == {
        Verdict.PASS: 0,
        Verdict.FAIL: 1,
        Verdict.MISCONFIGURED: 2,
        Verdict.INCONCLUSIVE: 3,
    }
