from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from preflight.checks.gpu_state import GpuState, judge_count, judge_state, list_gpu_faults
from preflight.host.nvml_library import (
    build_no_library_error,
    count_device_files,
    count_gpus_on_bus,
    count_own_gpus,
    runs_outside_container,
)
from preflight.results import Outcome


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (GpuState(index=3, lost=True), "lost"),
        (GpuState(index=3, remap_pending=True), "is pending; reset the GPU"),
        (GpuState(index=3, remap_failed=True), "plan a replacement"),
        (GpuState(index=3, recovery_action=2), "a reboot of the node (recovery action 2)"),
        (GpuState(index=3, recovery_action=6), "a reset of the bus (recovery action 6)"),
        (GpuState(index=3, recovery_action=77), "an action unknown to this release (recovery action 77)"),
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


def test_what_a_driver_is_too_old_to_report_is_a_remark() -> None:
    result = judge_state(GpuState(index=0, unsupported=("remapped rows", "recovery action")))
    assert result.outcome is Outcome.PASS
    assert result.remarks == ("the driver does not report remapped rows, recovery action",)


def test_all_faults_of_a_gpu_are_listed() -> None:
    assert len(list_gpu_faults(GpuState(index=0, remap_pending=True, remap_failed=True, recovery_action=4))) == 3


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
    assert count_gpus_on_bus(tmp_path) == 2
    assert count_gpus_on_bus(tmp_path / "none") == 0


def test_without_a_library_only_a_bus_without_gpus_excuses() -> None:
    assert build_no_library_error(0).outcome is Outcome.NOT_APPLICABLE
    assert build_no_library_error(8).outcome is Outcome.ERROR


def test_a_container_may_show_gpus_by_their_device_files_alone(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert count_device_files(tmp_path) == 2
    assert count_device_files(tmp_path / "none") == 0


def machine(root: Path, *, bus: int, files: int, denied: int = 0, init: str = "systemd", handed_on: int = 0) -> int:
    """How many GPUs the driver should show on a machine, or in a container, of this kind."""
    for number in range(bus):
        place = root / "bus" / str(number)
        place.mkdir(parents=True)
        (place / "vendor").write_text("0x10de\n")
        (place / "class").write_text("0x030200\n")
        (place / "driver").symlink_to("vfio-pci" if number < handed_on else "nvidia")
    (root / "dev").mkdir()
    for number in range(files):
        (root / "dev" / f"nvidia{number}").touch()
    for number in range(files, files + denied):
        (root / "dev" / f"nvidia{number}").symlink_to("nowhere")  # there, and cannot be opened
    (root / "proc" / "1").mkdir(parents=True)
    (root / "proc" / "1" / "comm").write_text(f"{init}\n")
    return count_own_gpus(root / "bus", root / "dev", root / "proc")


@pytest.mark.parametrize(
    ("facts", "ours"),
    [
        ({"bus": 8, "files": 8}, 8),
        ({"bus": 8, "files": 7}, 8),  # one that the driver could not start
        ({"bus": 7, "files": 8}, 8),  # one that fell off the bus since
        ({"bus": 8, "files": 1, "denied": 7}, 1),  # a job that was given one
        ({"bus": 8, "files": 2, "init": "python"}, 2),  # a container that was given two
        ({"bus": 8, "files": 6, "handed_on": 2}, 6),  # two are a virtual machine's
        ({"bus": 0, "files": 0}, 0),
    ],
)
def test_how_many_gpus_the_driver_should_show(tmp_path: Path, facts: dict[str, Any], ours: int) -> None:
    assert machine(tmp_path, **facts) == ours


def test_a_container_with_an_init_of_its_own_is_none_of_the_machine(tmp_path: Path) -> None:
    machine(tmp_path, bus=0, files=0)
    assert runs_outside_container(tmp_path / "proc")
    for who, files in (("1", "mnt:[1]"), ("self", "mnt:[2]")):
        (tmp_path / "proc" / who / "ns").mkdir(parents=True)
        (tmp_path / "proc" / who / "ns" / "mnt").symlink_to(files)
    assert not runs_outside_container(tmp_path / "proc")
    (tmp_path / "proc" / "self" / "ns" / "mnt").unlink()
    assert runs_outside_container(tmp_path / "proc")  # who is not root may not know
    (tmp_path / "run" / "systemd").mkdir(parents=True)
    (tmp_path / "run" / "systemd" / "container").write_text("lxc")
    assert not runs_outside_container(tmp_path / "proc")
    assert not runs_outside_container(tmp_path / "none")


@pytest.mark.parametrize(("shown", "ours", "open_"), [(8, 8, False), (7, 8, True), (8, 0, False), (0, 8, False)])
def test_fewer_gpus_than_there_are_is_no_pass(shown: int, ours: int, *, open_: bool) -> None:
    found = judge_count(shown, ours)
    assert (found is not None) is open_
    if found:
        assert found.outcome is Outcome.ERROR
        assert "8 GPUs, but the driver shows 7" in found.reason
