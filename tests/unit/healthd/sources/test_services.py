from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.service_checks import Limits, ServicesCheck
from healthd.collectors.machine_access import MachineAccess, SourceAbsent
from healthd.collectors.services import Service, ServicesSample, parse_systemctl_output, read_services
from healthd.findings.facts import Moment, Raise
from vocabulary.finding import Severity

Build = Callable[[Mapping[str, str]], MachineAccess]
SHOWN = (
    "Id=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState=failed\nUnitFileState=enabled\n\n"
    "Id=slurmd.service\nLoadState=loaded\nActiveState=inactive\nUnitFileState=disabled\n\n"
    "Id=kubelet.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n"
)


class WithSystemd(MachineAccess):
    """A machine whose systemctl prints this."""

    def __init__(self, root: Path, code: int, output: str) -> None:
        super().__init__(str(root))
        (root / "run/systemd/system").mkdir(parents=True)
        self._says = (code, output)
        self.asked: Sequence[str] = ()

    def run(self, command: Sequence[str], deadline_s: float) -> tuple[int, str]:  # noqa: ARG002 - the machine's signature
        """As given."""
        self.asked = command
        return self._says


def test_units_that_are_installed_are_told_with_whether_they_are_wanted(tmp_path: Path) -> None:
    services = read_services(WithSystemd(tmp_path, 0, SHOWN), {}).services
    assert services == (Service("nvidia-fabricmanager", True, "failed"), Service("slurmd", False, "inactive"))


def test_a_named_unit_is_wanted_even_if_it_is_not_installed(tmp_path: Path) -> None:
    machine = WithSystemd(tmp_path, 0, SHOWN)
    services = read_services(machine, {"units": ("kubelet",)}).services
    assert machine.asked[-1] == "kubelet.service"
    assert services[-1] == Service("kubelet", True, "inactive")


def test_without_systemd_it_is_absent(machine: Build) -> None:
    with pytest.raises(SourceAbsent, match="systemd does not run"):
        read_services(machine({}), {})


def test_none_of_them_is_a_state_and_a_failing_systemctl_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(SourceAbsent, match="installed"):
        read_services(WithSystemd(tmp_path / "a", 0, ""), {})
    with pytest.raises(RuntimeError, match="ended with 1"):
        read_services(WithSystemd(tmp_path / "b", 1, ""), {})


@given(st.text())
def test_any_output_can_be_read(text: str) -> None:
    assert all(service.name or service for service in parse_systemctl_output(text, frozenset()))


@pytest.mark.parametrize(("name", "severity"), [("slurmd", Severity.WARNING), ("nvidia-fabricmanager", Severity.ERROR)])
def test_a_wanted_service_that_stays_down_is_said(name: str, severity: Severity) -> None:
    check = ServicesCheck(Limits(raise_after_s=60, clear_after_s=0))
    down = ServicesSample((Service(name, True, "failed"), Service("kubelet", False, "failed")))
    assert [f for f in check.judge(down, Moment(0, 0)) if isinstance(f, Raise)] == []
    (fact,) = check.judge(down, Moment(0, 60))
    assert isinstance(fact, Raise)
    assert (fact.component.name, fact.severity) == (f"service {name}", severity)
    assert check.judge(ServicesSample((Service(name, True, "active"),)), Moment(0, 61)) == []
