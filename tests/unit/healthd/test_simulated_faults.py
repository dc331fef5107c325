from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.findings.facts import LevelFact, Moment, Raise, make_gpu_component
from healthd.findings.finding_ledger import FindingLedger
from healthd.findings.gpu_state import GpuState
from healthd.gpu_monitoring.simulated_fault_files import FILES_MAX, SimulatedFaultFolder
from healthd.gpu_monitoring.simulated_faults import SimulatedFault, SimulatedHang, simulate_faults
from healthd.gpu_monitoring.simulated_gpus import SimulatedGpus
from healthd.samples.nvml import GpuConstants, GpuReading, Link
from vocabulary.finding import Severity
from vocabulary.messages.wire import Gpu


def state(index: int, **values: object) -> GpuState:
    reading = GpuReading(index=index, **values)  # type: ignore[arg-type]  # the fields are the test's own
    return GpuState(Gpu(index, f"GPU-{index}", f"0000:1{index}:00.0"), GpuConstants(index=index), reading, reading)


STATES = [state(0, temperature_c=40), state(1, temperature_c=41, ecc_uncorrected=2, links=(Link(0, active=True),))]


class TooHot:
    """A check of one line."""

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        return [
            Raise(
                check="temperature",
                code="hot",
                component=make_gpu_component(gpu.gpu),
                severity=Severity.WARNING,
                summary="hot",
                at=now.wall,
            )
            for gpu in gpus
            if (gpu.read.temperature_c or 0) > 90
        ]


def test_values_stand_in_counters_grow_masks_gain_and_links_go_down() -> None:
    fault = SimulatedFault(
        gpu=1,
        until=9.0,
        values={"temperature_c": 97},
        added={"ecc_uncorrected": 3},
        bits={"throttle_mask": 8},
        links_down=(0, 5),
    )
    real, pretended = simulate_faults(STATES, [fault])
    assert real == STATES[0]
    assert (pretended.read.temperature_c, pretended.latest.ecc_uncorrected, pretended.latest.throttle_mask) == (
        97,
        5,
        8,
    )
    assert pretended.latest.links == (Link(0, active=False), Link(5, active=False))
    assert STATES[1].read.temperature_c == 41


def test_a_gpu_that_is_not_there_is_left_alone() -> None:
    assert simulate_faults(STATES, [SimulatedFault(gpu=7, until=9.0, values={"temperature_c": 97})]) == STATES


def test_only_the_pretended_gpu_is_spoken_of_and_all_is_marked_and_ends() -> None:
    ledger = FindingLedger("n1", "b")
    judge = SimulatedGpus(ledger, {"temperature": TooHot()})
    hot = [*STATES, state(2, temperature_c=99)]
    fault = SimulatedFault(gpu=1, until=9.0, values={"temperature_c": 97})
    judge.judge(hot, [fault], Moment(1, 1))
    assert [(f.component.index, f.injected) for f in ledger.active] == [(1, True)]
    judge.judge(hot, [], Moment(2, 2))
    assert ledger.active == ()


def test_what_an_earlier_process_pretended_is_taken_back() -> None:
    earlier = FindingLedger("n1", "b")
    SimulatedGpus(earlier, {"temperature": TooHot()}).judge(
        STATES, [SimulatedFault(gpu=0, until=9.0, values={"temperature_c": 97})], Moment(1, 1)
    )
    ledger = FindingLedger("n1", "b", earlier.active)
    SimulatedGpus(ledger, {"temperature": TooHot()}).judge(STATES, [], Moment(2, 2))
    assert ledger.active == ()


def test_the_folder_is_read_and_what_is_over_or_was_a_hang_is_removed(tmp_path: Path) -> None:
    faults = {
        "a": SimulatedFault(gpu=0, until=50.0),
        "b": SimulatedFault(gpu=1, until=10.0),
        "c": SimulatedHang(source="nvml", gpu=3),
    }
    for name, fault in faults.items():
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(fault))
    box = SimulatedFaultFolder(tmp_path)
    assert box.read(20.0) == ([faults["a"]], [faults["c"]])
    assert box.read(20.0) == ([faults["a"]], [])
    assert box.read(60.0) == ([], [])
    assert list(tmp_path.iterdir()) == []


def test_no_folder_is_nothing_to_pretend(tmp_path: Path) -> None:
    assert SimulatedFaultFolder(tmp_path / "none").read(1.0) == ([], [])


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{", b'{"gpu": 1}', b'{"gpu": 1, "until": 9e9, "values": {"links": 1}}', b'{"\xff": 1}'],
)
def test_what_cannot_be_understood_is_removed_and_said(
    text: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "x.json").write_bytes(text)
    assert SimulatedFaultFolder(tmp_path).read(1.0) == ([], [])
    assert list(tmp_path.iterdir()) == []
    assert "not a valid simulated fault" in caplog.text


@given(st.dictionaries(st.sampled_from(GpuReading.__struct_fields__), st.integers(0, 200)))
def test_any_value_is_pretended_or_refused(values: dict[str, int]) -> None:
    text = json.dumps({"gpu": 0, "until": 9.0, "values": values})
    try:
        fault = msgspec.json.decode(text, type=SimulatedFault)
    except msgspec.ValidationError:
        return
    (found,) = simulate_faults(STATES[:1], [fault])
    assert all(getattr(found.read, name) == value for name, value in values.items())


def test_a_flood_of_faults_is_bounded(tmp_path: Path) -> None:
    for number in range(FILES_MAX + 5):
        (tmp_path / f"{number:04}.json").write_bytes(msgspec.json.encode(SimulatedFault(gpu=0, until=9.0)))
    assert len(SimulatedFaultFolder(tmp_path).read(1.0)[0]) == FILES_MAX
