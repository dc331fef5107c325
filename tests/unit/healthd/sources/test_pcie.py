from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.pcie_checks import Limits, PcieCheck
from healthd.collectors.machine_access import MachineAccess, SourceAbsent
from healthd.collectors.pcie import PcieHop, PcieSample, read_pcie
from healthd.findings.facts import Moment, Raise, Unknown
from tests.nodes.machines import dgx
from vocabulary.finding import Severity
from vocabulary.hardware.machine_files import parse_aer_total, parse_leading_number

LIMITS = Limits(raise_after_s=30, clear_after_s=30, corrected_in_window=100, uncorrected_in_window=1, window_s=3600)
GPU, BRIDGE = dgx.gpu_address(0), "0000:80:00.0"
PATH = ("0000:00:01.0", BRIDGE, GPU)


def hop(pci: str, kind: str, **values: int | None) -> PcieHop:
    good = {"width": 16, "width_max": 16, "corrected": 0, "nonfatal": 0, "fatal": 0}
    known = good | values
    return PcieHop(
        pci, kind, known["width"], known["width_max"], 32.0, 32.0, known["corrected"], known["nonfatal"], known["fatal"]
    )


def raised(check: PcieCheck, at: float, **values: int | None) -> list[Raise]:
    sample = PcieSample((hop(BRIDGE, "bridge"), hop(GPU, "gpu", **values)), (PATH,))
    return [fact for fact in check.judge(sample, Moment(0, at)) if isinstance(fact, Raise)]


def test_every_device_that_matters_is_read_with_its_way_up(tmp_path: Path) -> None:
    sample = read_pcie(MachineAccess(str(dgx.build(tmp_path))), {})
    kinds = [hop.kind for hop in sample.hops]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"gpu": 8, "nic": 8, "bridge": 8}
    assert PATH in sample.paths
    assert next(h for h in sample.hops if h.pci == GPU) == hop(GPU, "gpu")._replace(driver="nvidia")


def test_a_machine_without_is_a_state(tmp_path: Path) -> None:
    with pytest.raises(SourceAbsent):
        read_pcie(MachineAccess(str(tmp_path)), {})


@pytest.mark.parametrize(
    ("text", "count"),
    [("RxErr 3\nTOTAL_ERR_COR 7", 7), ("", None), ("TOTAL_ERR_COR x", None), ("TOTAL_ERR_CORR 7", None)],
)
def test_the_total_of_an_error_file_is_read(text: str, count: int | None) -> None:
    assert parse_aer_total(text, "COR") == count


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert parse_aer_total(text, "COR") is None or parse_aer_total(text, "COR") is not None
    assert parse_leading_number(text) is None or isinstance(parse_leading_number(text), float)


def test_a_device_that_lost_lanes_is_a_warning_once_it_lasts() -> None:
    check = PcieCheck(LIMITS)
    assert [[fact.code for fact in raised(check, at, width=8)] for at in (0, 30)] == [[], ["narrow"]]
    raised(check, 40)
    assert raised(check, 71) == []


@pytest.mark.parametrize(
    ("field", "growth", "severity"),
    [("corrected", 100, Severity.WARNING), ("nonfatal", 1, Severity.WARNING), ("fatal", 1, Severity.ERROR)],
)
def test_errors_that_come_are_told_at_their_weight(field: str, growth: int, severity: Severity) -> None:
    check = PcieCheck(LIMITS)
    assert raised(check, 0, **{field: 5}) == []
    assert raised(check, 30, **{field: 5 + growth - 1}) == []
    (fact,) = raised(check, 60, **{field: 5 + growth})
    assert (fact.code, fact.severity, fact.component.pci) == (field, severity, GPU)


def test_a_bridge_is_named_with_what_lies_below_it() -> None:
    check = PcieCheck(LIMITS)
    for at, fatal in ((0, 0), (10, 1)):
        sample = PcieSample((hop(BRIDGE, "bridge", fatal=fatal), hop(GPU, "gpu")), (PATH,))
        facts = [fact for fact in check.judge(sample, Moment(0, at)) if isinstance(fact, Raise)]
    assert [(fact.component.pci, fact.evidence["above"]) for fact in facts] == [(BRIDGE, GPU)]


def test_what_cannot_be_read_is_unknown() -> None:
    sample = PcieSample((PcieHop(GPU, "gpu", *[None] * 7),), (PATH,))
    facts = PcieCheck(LIMITS).judge(sample, Moment(0, 0))
    assert {type(fact) for fact in facts} == {Unknown}
