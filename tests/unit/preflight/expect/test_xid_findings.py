from __future__ import annotations

import pytest

from preflight.expectations.xid_findings import judge_gpu_lines, judge_node_lines
from preflight.results import Outcome
from vocabulary.driver_log.xid_line import format_xid
from vocabulary.fault_catalogue.catalogue_file import load_catalogue

CATALOGUE = load_catalogue()
HERE, THERE = "0000:3b:00.0", "0000:5e:00.0"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (48, Outcome.FAIL),  # a double-bit error
        (64, Outcome.FAIL),  # a failed remap
        (79, Outcome.FAIL),  # fallen off the bus
        (94, Outcome.FAIL),  # a contained memory error
        (74, Outcome.FAIL),  # NVLink
        (13, Outcome.PASS),  # a program's fault
        (31, Outcome.PASS),
        (45, Outcome.PASS),  # what a killed test leaves
        (63, Outcome.PASS),  # a recorded remap: its counter decides
        (119, Outcome.ERROR),  # the driver's firmware does not answer
        (9999, Outcome.ERROR),  # described nowhere
    ],
)
def test_an_xid_accuses_what_the_catalogue_blames(code: int, outcome: Outcome) -> None:
    line = format_xid(code, HERE, pid=42, process="python3", detail="said the driver")
    (finding,) = judge_gpu_lines([line], HERE, CATALOGUE)
    assert finding.outcome is outcome
    assert line in finding.words
    assert judge_gpu_lines([line], THERE, CATALOGUE) == ()
    assert judge_gpu_lines([line], "", CATALOGUE) == ()
    assert judge_node_lines([line], CATALOGUE) == ()


def test_a_requested_recovery_fails() -> None:
    line = format_xid(154, HERE, detail="GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
    (finding,) = judge_gpu_lines([line], HERE, CATALOGUE)
    assert finding.outcome is Outcome.FAIL


def test_equal_lines_count_once_and_other_lines_not() -> None:
    line = format_xid(79, HERE, detail="GPU has fallen off the bus.")
    assert len(judge_gpu_lines([line, line, "usb 1-1: new device", ""], HERE, CATALOGUE)) == 1


def test_lines_of_switches_and_without_an_address_are_the_nodes() -> None:
    switch = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, Fatal, Link 5 Minion Link DLREQ interrupt"
    lost = "NVRM: GPU has fallen off the bus."
    found = judge_node_lines([switch, lost], CATALOGUE)
    assert [finding.outcome for finding in found] == [Outcome.FAIL, Outcome.FAIL]
    assert judge_gpu_lines([switch, lost], HERE, CATALOGUE) == ()
