"""Runs whose tests change what the simulated driver and the kernel log say while they run, on the host."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from preflight.execution import counter_watch
from preflight.execution.counter_results import TEST
from preflight.execution.plan_runner import run_plan
from preflight.execution.progress_output import SilentProgress
from preflight.execution.qualification import qualify_node
from preflight.host.nvml_library import count_gpus
from preflight.plan import Plan, Scope, Spec, build_plan
from preflight.results import Document, Outcome, Result, Verdict
from vocabulary.clock import SystemClock
from vocabulary.driver_log.xid_line import format_xid

pytestmark = [pytest.mark.torch, pytest.mark.skipif(count_gpus() > 0, reason="there is a GPU")]
Say = Callable[[Sequence[str]], None]
Run = Callable[..., tuple[Result, ...]]

# `happens` passes, and so does memory_pattern by its own comparison; meanwhile the second device's events take place.
MEANWHILE = """
import json, os
from pathlib import Path

def take_place(device):
    events = json.loads(os.environ["EVENTS"])
    if device is not None and device.name != "cpu:1":
        return
    scenario = Path(os.environ["FAKE_NVML_SCENARIO"])
    if events["driver"]:
        aside = scenario.with_name("meanwhile")
        aside.write_text(scenario.read_text() + "\\n".join(events["driver"]) + "\\n")
        aside.replace(scenario)
    with open(os.environ["KERNEL_LOG"], "a") as log:
        for number, line in enumerate(events["kernel"]):
            log.write(f"4,{100 + number},5,-;{line}\\n")
"""
HAPPENS = """
from meanwhile import take_place
from preflight.results import Outcome, Result

def check_happens(context):
    take_place(context.device)
    yield Result(test="happens", outcome=Outcome.PASS)
"""
MEMORY_PATTERN = """
import importlib.util
from meanwhile import take_place

spec = importlib.util.spec_from_file_location("original", {original!r})
original = importlib.util.module_from_spec(spec)
spec.loader.exec_module(original)

def check_memory_pattern(context):
    take_place(context.device)
    yield from original.check_memory_pattern(context)
"""
SITE = """
import pathlib
import preflight.checks, preflight.host.kernel_xids
preflight.checks.__path__.insert(0, {place!r})
preflight.host.kernel_xids.KERNEL_LOG = pathlib.Path({log!r})
"""


@pytest.fixture
def meanwhile(driver_says: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``meanwhile(driver=lines, kernel=lines)``: what takes place on GPU 1 during a test."""
    driver_says(["ecc_corrected_dram 0", "ecc_uncorrected_dram 0"])
    place, log = tmp_path / "checks", tmp_path / "kmsg"
    place.mkdir()
    log.write_text("6,1,5,-;Linux version 6.8\n")
    original = Path(__file__).parents[4] / "preflight" / "checks" / "memory_pattern.py"
    (place / "happens.py").write_text(HAPPENS)
    (place / "memory_pattern.py").write_text(MEMORY_PATTERN.format(original=str(original)))
    (tmp_path / "meanwhile.py").write_text(MEANWHILE)
    (tmp_path / "sitecustomize.py").write_text(SITE.format(place=str(place), log=str(log)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setenv("KERNEL_LOG", str(log))

    def happens(*, driver: Sequence[str] = (), kernel: Sequence[str] = ()) -> None:
        monkeypatch.setenv("EVENTS", json.dumps({"driver": driver, "kernel": kernel}))

    happens()
    return happens


def run(*scopes: Scope) -> tuple[Result, ...]:
    specs = tuple(Spec("happens", scope, 60.0, (), {"gate": 1.0}) for scope in scopes or (Scope.DEVICE,))
    return run_plan(Plan("gate", specs, {}), SystemClock(), SilentProgress())


def told(results: Sequence[Result]) -> list[tuple[str, str, Outcome]]:
    return [(each.test, each.device, each.outcome) for each in results]


PASSED = [("happens", "cpu:0", Outcome.PASS), ("happens", "cpu:1", Outcome.PASS)]
FAILED = [("happens", "cpu:0", Outcome.PASS), ("happens", "cpu:1", Outcome.FAIL)]


def test_a_double_bit_error_fails_the_test_though_all_patterns_pass(
    meanwhile: Callable[..., None], tmp_path: Path
) -> None:
    meanwhile(driver=["ecc_uncorrected_dram.1 2"])
    document: Document = qualify_node(
        build_plan("gate", ["memory_pattern"]), "n1", (), tmp_path, SystemClock(), SilentProgress()
    )
    assert document.verdict is Verdict.FAIL
    assert document.reason.startswith(
        "memory_pattern on cpu:1: dram: 2 more uncorrectable ECC errors (ecc_uncorrected 0 → 2); reset the GPU"
    )
    first, second = document.results
    assert (first.outcome, second.outcome) == (Outcome.PASS, Outcome.FAIL)
    assert [(each.name, each.where, each.before, each.after) for each in second.counter_changes] == [
        ("ecc_uncorrected", "dram", 0, 2)
    ]
    assert second.figures  # the patterns themselves were all right


def test_nothing_happened_is_nothing_said(meanwhile: Callable[..., None]) -> None:
    results = run()
    assert told(results) == PASSED
    assert not any(each.remarks or each.reason or each.counter_changes for each in results)


def test_a_corrected_error_is_a_remark(meanwhile: Callable[..., None]) -> None:
    meanwhile(driver=["ecc_corrected_dram.1 1"])
    results = run()
    assert told(results) == PASSED
    assert results[1].remarks == ("dram: 1 more corrected ECC error (ecc_corrected 0 → 1)",)


@pytest.mark.parametrize(("errors", "faults"), [(99, 0), (101, 1)])
def test_corrected_errors_outside_tests_count_against_the_limits_of_all_tests(
    meanwhile: Callable[..., None], errors: int, faults: int
) -> None:
    meanwhile(driver=[f"ecc_corrected_dram.1 {errors}"])
    results = run(Scope.NODE, Scope.DEVICE, Scope.DEVICE)
    assert [each.test for each in results].count(TEST) == faults
    assert faults == ("ecc_corrected 0 → 101, 100 allowed" in results[-1].reason)


def test_an_xid_fails_the_test_of_its_gpu_and_is_quoted(meanwhile: Callable[..., None]) -> None:
    line = format_xid(48, "0000:11:00.0", detail="An uncorrectable double bit error (DBE)")
    meanwhile(kernel=[line, format_xid(31, "0000:11:00.0", detail="MMU Fault")])
    results = run()
    assert told(results) == FAILED
    assert line in results[1].reason
    assert "MMU Fault" in results[1].remarks[0]


def test_a_line_of_a_switch_fails_the_node(meanwhile: Callable[..., None]) -> None:
    meanwhile(kernel=["nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, Fatal, Link 5 Minion Link DLREQ interrupt"])
    assert told(run()) == [*PASSED, ("happens", "", Outcome.FAIL)]


def test_what_happens_in_no_test_of_devices_is_the_runs(meanwhile: Callable[..., None]) -> None:
    meanwhile(driver=["remap_uncorrected.1 1", "pending.1 1"])
    results = run(Scope.NODE, Scope.DEVICE)
    assert told(results) == [("happens", "", Outcome.PASS), *PASSED, (TEST, "cpu:1", Outcome.FAIL)]
    assert "a row remap is pending; reset the GPU" in results[-1].reason
    assert "remapped_uncorrectable 0 → 1" in results[-1].reason


def test_a_fault_of_a_test_is_reported_once(meanwhile: Callable[..., None]) -> None:
    meanwhile(driver=["nvlink_recoveries.4.1 1"])
    results = run(Scope.DEVICE, Scope.DEVICE)
    assert told(results) == [*FAILED, *PASSED]
    assert results[1].locations[0].link == 4


def test_an_error_state_from_before_is_reported_by_the_run(meanwhile: Callable[..., None], driver_says: Say) -> None:
    driver_says(["failure.0 1"])
    results = run()
    assert told(results) == [*PASSED, (TEST, "cpu:0", Outcome.FAIL)]
    assert "a row remap failed" in results[-1].reason


def test_a_lost_gpu_fails(meanwhile: Callable[..., None]) -> None:
    meanwhile(driver=["lost 1"])
    results = run()
    assert told(results) == FAILED
    assert "the driver lost the GPU" in results[1].reason


def test_a_reading_that_hangs_ends_and_the_others_are_read(
    meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_watch, "READING_LIMIT_S", 1.0)
    meanwhile(driver=["hang 1", "ecc_uncorrected_dram.0 1"])
    first, second, hung = run()
    assert (first.outcome, "ecc_uncorrected 0 → 1" in first.reason) == (Outcome.FAIL, True)
    assert (second.outcome, "could not be read" in second.remarks[0]) == (Outcome.PASS, True)
    assert (hung.test, hung.device, hung.outcome) == (TEST, "cpu:1", Outcome.HANG)
    assert "did not end within 1 s; last seen at: hardware counters of GPU-fake-0001: ECC errors" in hung.reason


def test_a_driver_that_hangs_again_and_again_is_not_asked_for_ever(
    meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_watch, "READING_LIMIT_S", 0.5)
    monkeypatch.setattr(counter_watch, "HUNG_READINGS_MAX", 1)
    meanwhile(driver=["hang 1", "hang 0"])
    results = run()
    assert told(results) == [*PASSED, (TEST, "cpu:0", Outcome.HANG)]
    assert "too many readings did not end" in results[1].remarks[0]


def test_counters_that_an_old_driver_lacks_are_a_remark_once(meanwhile: Callable[..., None], driver_says: Say) -> None:
    driver_says(["error_ecc_corrected 3", "error_ecc_uncorrected 13", "error_fields 2", "error_pcie_replays 13"])
    results = run(Scope.DEVICE, Scope.DEVICE)
    assert told(results) == [*PASSED, *PASSED]
    assert "the driver does not report ECC errors, PCIe replays" in results[0].remarks[0]
    assert not results[2].remarks


def test_a_kernel_log_that_cannot_be_read_is_a_remark(meanwhile: Callable[..., None], tmp_path: Path) -> None:
    site = tmp_path / "sitecustomize.py"
    site.write_text(site.read_text().replace(str(tmp_path / "kmsg"), str(tmp_path / "none")))
    results = run()
    assert told(results) == PASSED
    assert [each.remarks for each in results[1:]] == [()]  # once for the node
    assert "the kernel log could not be read" in results[0].remarks[0]


def test_a_run_that_cannot_read_counters_says_so(meanwhile: Callable[..., None], driver_says: Say) -> None:
    driver_says(["error_throttle 999"])
    results = run()
    assert told(results) == PASSED
    assert all("could not be read (Unknown Error)" in each.remarks[0] for each in results)
