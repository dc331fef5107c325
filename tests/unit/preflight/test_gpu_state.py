from __future__ import annotations

from pathlib import Path

import pytest

from preflight.checks.gpu_state import GpuState, faults_of, judge_state
from preflight.driver import device_files, gpus_on_bus, no_library
from preflight.results import Outcome


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (GpuState(index=3, lost=True), "lost"),
        (GpuState(index=3, remap_pending=True), "waits for a GPU reset"),
        (GpuState(index=3, remap_failed=True), "plan replacement"),
        (GpuState(index=3, recovery_action=2), "recovery action 2 (reboot the node)"),
        (GpuState(index=3, recovery_action=77), "recovery action 77 (not described here)"),
    ],
)
def test_each_fault_fails_and_is_named(state: GpuState, says: str) -> None:
    result = judge_state(state)
    assert (result.outcome, result.device) == (Outcome.FAIL, "GPU 3")
    assert says in result.reason


def test_a_good_gpu_passes_with_and_without_row_remapping() -> None:
    good = GpuState(index=0, uuid="GPU-1", remap_pending=False, remap_failed=False, recovery_action=0)
    assert judge_state(good).outcome is Outcome.PASS
    assert judge_state(GpuState(index=0)).outcome is Outcome.PASS


def test_what_could_not_be_read_is_not_good_and_a_fault_outweighs_it() -> None:
    unread = GpuState(index=0, unread=("remapped rows (Unknown Error)",))
    assert judge_state(unread).outcome is Outcome.ERROR
    assert judge_state(GpuState(index=0, recovery_action=1, unread=("UUID",))).outcome is Outcome.FAIL


def test_all_faults_of_a_gpu_are_listed() -> None:
    assert len(faults_of(GpuState(index=0, remap_pending=True, remap_failed=True, recovery_action=4))) == 3


def test_gpus_are_counted_on_the_pci_bus(tmp_path: Path) -> None:
    for name, vendor, kind in [
        ("0000:3b:00.0", "0x10de", "0x030200"),
        ("0000:3c:00.0", "0x10de", "0x030000"),
        ("0000:3d:00.0", "0x10de", "0x068000"),  # an NVSwitch
        ("0000:3e:00.0", "0x15b3", "0x020700"),  # a network card
    ]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    (tmp_path / "0000:3f:00.0").mkdir()  # gone while we looked
    assert gpus_on_bus(tmp_path) == 2
    assert gpus_on_bus(tmp_path / "none") == 0


def test_without_a_library_only_a_bus_without_gpus_excuses() -> None:
    assert no_library(0).outcome is Outcome.NOT_APPLICABLE
    assert no_library(8).outcome is Outcome.ERROR


def test_a_container_may_show_gpus_by_their_device_files_alone(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert device_files(tmp_path) == 2
    assert device_files(tmp_path / "none") == 0
