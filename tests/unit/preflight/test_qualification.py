from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from preflight.baseline_files import BASELINE
from preflight.execution.device_assignment import DeviceAssignments, assign_host_devices
from preflight.execution.plan_runner import PlanRunner
from preflight.execution.progress_output import SilentProgress
from preflight.execution.qualification import confirm_slow_results, qualify_node
from preflight.host.nvml_library import count_gpus
from preflight.plan import LASTS_S, LEVELS, Injection, Plan, Scope, Spec
from preflight.results import Document, Figure, Outcome, Result, Verdict
from vocabulary.clock import SystemClock

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(count_gpus() > 0, reason="the devices here are those of a machine without a GPU"),
]


def planned(level: str, fault: str = "") -> Plan:
    spec = Spec("measures", Scope.DEVICE, 1e6, ("wrong",), {level: 1.0})
    return Plan(level, (spec,), {"measures": Injection(fault)} if fault else {})


def stable(document: Document) -> str:
    """The document without what differs from machine to machine."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    text = re.sub(r'("(?:started_at|seconds)": )[0-9.e+-]+', r"\g<1>0", text)
    text = re.sub(r',\s*"triton": "[^"]*"', "", text)
    return re.sub(r'("(?:python|torch|product)": )"[^"]*"', r'\1"this one"', text)


@pytest.mark.parametrize(
    ("level", "fault", "rounds"), [("gate", "", 1), ("standard", "wrong", 1), ("standard", "third", 3)]
)
def test_a_level_goes_on_until_a_round_is_no_pass_and_its_document_holds_all_that_was_found(
    more_tests: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    golden: Callable[[str, str], None],
    level: str,
    fault: str,
    rounds: int,
) -> None:
    monkeypatch.setitem(LASTS_S, "standard", 1e9)
    inject = (f"measures:{fault}",) if fault else ()
    document = qualify_node(planned(level, fault), "this-node", inject, tmp_path, SystemClock(), SilentProgress())
    assert document.rounds == rounds
    assert document.verdict is (Verdict.FAIL if fault else Verdict.PASS)
    golden(f"preflight/{fault or 'pass'}.json", stable(document))


def test_a_fault_that_was_committed_and_not_found_is_no_pass(more_tests: None, tmp_path: Path) -> None:
    document = qualify_node(
        planned("gate", "nothing"), "n1", ("measures:nothing",), tmp_path, SystemClock(), SilentProgress()
    )
    assert document.verdict is Verdict.INCONCLUSIVE
    assert document.reasons == ("measures: the fault nothing was injected and not detected",)


def test_a_node_whose_gpus_are_hidden_in_part_is_not_proved_whole(
    more_tests: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = msgspec.structs.replace(DeviceAssignments(seats=assign_host_devices(2)), left_out="leaves out GPU 1")
    monkeypatch.setattr("preflight.execution.worker_pool.assign_devices", lambda *_: found)
    monkeypatch.setitem(LEVELS, "gate", ("measures",))
    document = qualify_node(planned("gate"), "n1", (), tmp_path, SystemClock(), SilentProgress())
    assert (document.verdict, document.complete) == (Verdict.PASS, False)
    assert ["leaves out GPU 1" in result.remarks for result in document.results] == [True, False]


def rated(value: float, device: str = "cuda:0", test: str = "measures", **changes: object) -> Result:
    figure = Figure(name="product_rate", value=value, unit="TFLOP/s")
    return msgspec.structs.replace(Result(test=test, outcome=Outcome.PASS, device=device, figures=(figure,)), **changes)


def test_a_limit_that_is_missed_once_fails_nothing() -> None:
    slow = rated(700, outcome=Outcome.FAIL, reason="it is slow", by_limit=True)
    (once,) = confirm_slow_results([slow], [rated(790)])
    assert (once.outcome, once.remarks) == (Outcome.PASS, ("measured twice; the first time: it is slow",))
    (twice,) = confirm_slow_results([slow], [slow])
    assert (twice.outcome, twice.reason) == (Outcome.FAIL, "it is slow")
    assert confirm_slow_results([rated(790)], [slow]) == (rated(790),)


def test_a_fault_of_either_measurement_stays() -> None:
    slow = rated(700, outcome=Outcome.FAIL, reason="it is slow", by_limit=True)
    wrong = rated(790, outcome=Outcome.FAIL, reason="wrong bits")
    assert confirm_slow_results([slow], [wrong])[0].reason == "wrong bits"
    assert confirm_slow_results([rated(790)], [wrong]) == (wrong,)
    assert confirm_slow_results([wrong], [rated(790)]) == (wrong,)
    hung = rated(790, device="cuda:1", outcome=Outcome.HANG)
    assert confirm_slow_results([slow], [slow, hung])[1] == hung


def test_only_the_test_that_missed_a_limit_is_measured_again(
    more_tests: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first measurement of one device is disturbed; what was learned from others says so."""
    ran: list[object] = []

    def measure(runner: PlanRunner, only: tuple[str, ...] | None = None) -> tuple[Result, ...]:
        ran.append(only)
        disturbed = rated(600, outcome=Outcome.FAIL, reason="it is slow", by_limit=True)
        return (rated(790, test="other"), disturbed) if only is None else (rated(790),)

    monkeypatch.setattr(PlanRunner, "round", measure)
    (tmp_path / BASELINE).write_text("{")
    specs = tuple(Spec(test, Scope.NODE, 1e6, (), {"gate": 1.0}) for test in ("other", "measures"))
    document = qualify_node(Plan("gate", specs, {}), "n1", (), tmp_path, SystemClock(), SilentProgress())
    assert ran == [None, ("measures",)]
    assert [(result.test, result.outcome) for result in document.results] == [
        ("other", Outcome.PASS),
        ("measures", Outcome.PASS),
    ]
    said = [remark for result in document.results for remark in result.remarks if BASELINE in remark]
    assert len(said) == 1, "what could not be read is said once"
