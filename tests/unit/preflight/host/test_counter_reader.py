from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pynvml
import pytest

from preflight.host.counter_reader import VALUE_MAX, HardwareCounterReader, clean_count
from preflight.host.counter_records import HardwareCounters

Say = Callable[[Sequence[str]], None]
GPU = "GPU-fake-0003"
NOT_SUPPORTED, INVALID, LOST, RESET_REQUIRED, UNKNOWN = 3, 2, 15, 16, 999


def read(reader: HardwareCounterReader | None = None) -> HardwareCounters:
    (gpu,) = (reader or HardwareCounterReader(lambda _: None)).read([GPU], None).gpus
    return gpu


def values(gpu: HardwareCounters) -> dict[tuple[str, str], int]:
    return {(each.name, each.where): each.value for each in gpu.counters}


def test_counters_are_read_with_their_locations(driver_says: Say) -> None:
    driver_says(
        [
            "ecc_corrected_dram.3 5",
            "ecc_uncorrected_sram.3 1",
            "remap_corrected.3 2",
            "remap_uncorrected.3 4",
            "pending.3 1",
            "failure.3 1",
            "recovery_action.3 1",
            "retired_uncorrected.3 6",
            "retirement_pending.3 1",
            "pcie_replays.3 7",
            "nvlink_replays.5.3 8",
            "hw_power_brake_ns.3 9",
            "throttle.3 0x80",
        ]
    )
    gpu = read()
    found = values(gpu)
    assert found["ecc_corrected", "dram"] == 5
    assert found["ecc_uncorrected", "sram"] == 1
    assert (found["remapped_correctable", ""], found["remapped_uncorrectable", ""]) == (2, 4)
    assert (found["retired_double_bit", ""], found["pcie_replays", ""]) == (6, 7)
    assert (found["nvlink_replays", "NVLink 5"], found["nvlink_replays", "NVLink 4"]) == (8, 0)
    assert found["hw_power_brake_ns", ""] == 9
    assert (gpu.remap_pending, gpu.remap_failed, gpu.retirement_pending, gpu.recovery_action) == (True, True, True, 1)
    assert (gpu.throttle_reasons, gpu.address, gpu.unsupported, gpu.failure) == (0x80, "0000:13:00.0", (), "")


def test_a_driver_that_does_not_say_where_gives_its_total(driver_says: Say) -> None:
    driver_says(["ecc_uncorrected.3 4"])
    assert values(read())["ecc_uncorrected", "all memories"] == 4


@pytest.mark.parametrize("code", [NOT_SUPPORTED, INVALID, 13, 6, 26])
def test_what_an_old_driver_does_not_have_is_no_failure(driver_says: Say, code: int) -> None:
    calls = ("fields", "ecc_corrected", "ecc_uncorrected", "remap_corrected", "pcie_replays", "throttle")
    driver_says([f"error_{call} {code}" for call in calls])
    gpu = read()
    assert (gpu.failure, gpu.counters, gpu.throttle_reasons, gpu.recovery_action) == ("", (), None, None)
    assert gpu.unsupported == ("ECC errors", "remapped rows or retired pages", "PCIe replays")


def test_what_a_gpu_does_not_have_is_not_asked_again(driver_says: Say) -> None:
    driver_says(["error_pending 3"])
    announced: list[str] = []
    reader = HardwareCounterReader(announced.append)
    read(reader)
    assert f"hardware counters of {GPU}: row remaps" in announced
    announced.clear()
    read(reader)
    assert announced == [
        f"hardware counters of {GPU}: ECC errors",
        f"hardware counters of {GPU}: field values",
        f"hardware counters of {GPU}: clocks event reasons",
    ]


def test_fields_that_a_gpu_does_not_have_are_not_asked_again(driver_says: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    call = pynvml.nvmlDeviceGetFieldValues

    def spy(handle: Any, fields: Sequence[tuple[int, int]]) -> Any:
        asked.append(len(fields))
        return call(handle, fields)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", spy)
    reader = HardwareCounterReader(lambda _: None)
    first, second = read(reader), read(reader)
    assert first == second
    assert (
        asked[1] == len([each for each in first.counters if "remapped" not in each.name and "ecc" not in each.name]) + 1
    )


@pytest.mark.parametrize(
    ("code", "lost", "reset"), [(LOST, True, False), (RESET_REQUIRED, False, True), (UNKNOWN, False, False)]
)
def test_a_failed_call_says_what_failed(driver_says: Say, code: int, lost: bool, reset: bool) -> None:  # noqa: FBT001 - a row
    reader = HardwareCounterReader(lambda _: None)
    read(reader)
    driver_says([f"error_throttle.3 {code}"])
    gpu = read(reader)
    assert (gpu.lost, gpu.reset_required, gpu.address) == (lost, reset, "0000:13:00.0")
    assert gpu.failure


def test_numbers_that_are_no_counts_are_unknown(driver_says: Say) -> None:
    driver_says(["ecc_corrected_dram.3 0xffffffffffffffff", "ecc_uncorrected_dram.3 1", "pcie_replays.3 -1"])
    found = values(read())
    assert ("ecc_corrected", "dram") not in found
    assert ("pcie_replays", "") not in found
    assert found["ecc_uncorrected", "dram"] == 1
    assert [clean_count(each) for each in (-1, VALUE_MAX, None, "7", 1.5, 0)] == [None, None, None, None, None, 0]


def test_a_missing_gpu_and_a_missing_driver_are_failures(
    driver_says: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver_says(["gpus 2"])
    assert (read().failure, read().lost) == ("Not Found", True)
    driver_says(["error_handle.3 15"])
    assert (read().failure, read().lost) == ("GPU is lost", True)
    monkeypatch.setenv("HEALTHD_NVML_LIBRARY", str(tmp_path / "none.so"))
    reading = HardwareCounterReader(lambda _: None).read([GPU], None)
    assert (reading.gpus, "cannot be loaded" in reading.failure) == ((), True)
