"""The NVML collector with real children on the fake driver library."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from healthd.gpu_monitoring.nvml_collector import NvmlCollector, NvmlReinitPolicy
from healthd.host import Host
from healthd.samples.nvml import GpuReading, Inventory, NvmlHang, NvmlSample, NvmlUnavailable, Sweep
from vocabulary.clock import Clock, SystemClock

S = TypeVar("S", Inventory, Sweep, NvmlHang, NvmlUnavailable)
CHATTERING_CHILD = """
import time
print('{"type":"Inventory","driver":"d","count":0,"gpus":[]}', flush=True)
while True:
    time.sleep(0.1)
    print('{"type":"XidEvent","at":1.0,"index":0,"code":79}', flush=True)
"""


@pytest.fixture
def collector(library: Path, gpus: Callable[..., None]) -> Iterator[Watched]:
    collector = Watched(library)
    yield collector
    collector.close()


class Watched(NvmlCollector):
    """Gives out samples one by one."""

    def __init__(self, library: Path | None, clock: Clock | None = None, **pauses: float) -> None:
        super().__init__(
            Host(nvml_library=library, clock=clock or SystemClock()), interval_s=0.1, deadline_s=1.0, **pauses
        )
        self.waiting: list[NvmlSample] = []


def next_one(collector: Watched, kind: type[S], that: Callable[[S], bool] = lambda _: True) -> S:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        while collector.waiting:
            sample = collector.waiting.pop(0)
            if isinstance(sample, kind) and that(sample):
                return sample
        collector.waiting += collector.poll()
        time.sleep(0.01)  # the child is at work
    raise AssertionError(f"no {kind.__name__}")


def test_inventory_then_sweeps(collector: Watched, gpus: Callable[..., None]) -> None:
    gpus("gpus 2", "domain 0x3", "bus_base 0x20", "uuid_prefix GPU-n1", "temperature 50", "temperature.1 60")
    inventory = next_one(collector, Inventory)
    assert [(g.index, g.uuid, g.pci) for g in inventory.gpus] == [
        (0, "GPU-n1-0000", "0003:20:00.0"),
        (1, "GPU-n1-0001", "0003:21:00.0"),
    ]
    sweep = next_one(collector, Sweep)
    assert [reading.temperature_c for reading in sweep.readings] == [50, 60]
    assert sweep.readings[0].remap_pending is False


def test_a_lost_gpu_spares_the_others(collector: Watched, gpus: Callable[..., None]) -> None:
    gpus("gpus 3", "lost 1")
    inventory = next_one(collector, Inventory)
    assert (inventory.count, [gpu.index for gpu in inventory.gpus]) == (3, [0, 2])
    sweep = next_one(collector, Sweep)
    assert [(reading.lost, reading.temperature_c) for reading in sweep.readings] == [
        (False, 41),
        (True, None),
        (False, 41),
    ]


def test_the_dear_readings_come_when_asked_for(collector: Watched, gpus: Callable[..., None]) -> None:
    next_one(collector, Sweep, lambda sweep: sweep.readings[0].remap_pending is None)
    gpus("gpus 2", "pending.1 1", "recovery_action 2", "ecc_uncorrected.0 5")
    collector.look_now()
    readings = next_one(collector, Sweep, lambda sweep: sweep.readings[0].remap_pending is not None).readings
    assert (readings[0].ecc_uncorrected, readings[0].remap_pending, readings[1].remap_pending) == (5, False, True)
    assert readings[1].recovery_action == 2


def test_a_hang_is_told_with_gpu_and_call_and_a_new_child_takes_over(
    collector: Watched, gpus: Callable[..., None]
) -> None:
    next_one(collector, Sweep)
    gpus("gpus 2", "hang 1")
    hang = next_one(collector, NvmlHang)
    assert (hang.index, hang.call) == (1, "temperature_c")
    assert hang.seconds > 1.0
    gpus("gpus 2")
    next_one(collector, Sweep, lambda sweep: len(sweep.readings) == 2)
    assert collector.abandoned == 0


def test_xid_events_are_no_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_child(tmp_path, monkeypatch, CHATTERING_CHILD)
    collector = Watched(None)
    hang = next_one(collector, NvmlHang)
    assert hang.seconds > 1.0
    collector.close()


def pretend_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Make `program` the NVML child of this test."""
    package = tmp_path / "healthd"
    (package / "nvml").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "nvml" / "child.py").write_text(program)
    monkeypatch.chdir(tmp_path)  # there, that is the child


def test_bytes_that_are_no_text_are_an_unreadable_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'{"type":"NvmlUnavailable","at":1.0,"reason":"\xff"}\n'
    pretend_child(tmp_path, monkeypatch, f"import os, time; os.write(1, {line!r}); time.sleep(60)")
    collector = Watched(None)
    assert "invalid message from the child" in next_one(collector, NvmlUnavailable).reason
    collector.close()


def test_without_a_library_it_says_so_and_tries_again(gpus: Callable[..., None]) -> None:
    collector = Watched(Path("/nowhere/libnvidia-ml.so.1"))
    assert "/nowhere/libnvidia-ml.so.1" in next_one(collector, NvmlUnavailable).reason
    next_one(collector, NvmlUnavailable)
    assert collector.starts == 2
    collector.close()


def test_a_driver_that_does_not_match_is_quoted(collector: Watched, gpus: Callable[..., None]) -> None:
    gpus("fail 18")
    assert "mismatch" in next_one(collector, NvmlUnavailable).reason


def test_a_child_that_is_killed_is_told_and_replaced(collector: Watched) -> None:
    next_one(collector, Sweep)
    (pid,) = collector.pids()
    os.kill(pid, 9)
    assert "ended unexpectedly" in next_one(collector, NvmlUnavailable).reason
    next_one(collector, Sweep)


def test_a_gpu_that_was_reset_elsewhere_is_found_by_initialising_anew(library: Path, gpus: Callable[..., None]) -> None:
    collector = Watched(library, renew_s=0.5)
    gpus("gpus 2", "lost_until_init 1")
    next_one(collector, Sweep, lambda sweep: sweep.readings[1].temperature_c is not None)
    gpus("gpus 2", "lost 1", "lost_until_init 1")
    next_one(collector, Sweep, lambda sweep: sweep.readings[1].lost)
    gpus("gpus 2", "lost_until_init 1")
    next_one(collector, Sweep, lambda sweep: sweep.readings[1].temperature_c is not None)
    collector.close()


def test_how_often_nvml_is_initialised_anew_for_a_lost_gpu() -> None:
    renewals = NvmlReinitPolicy(60.0)
    good, lost = (Sweep(0.0, 0.1, (GpuReading(index=0, lost=bad),)) for bad in (False, True))
    assert [at for at in range(0, 1000, 10) if renewals.due(lost, at)] == [60, 180, 420, 900]
    assert not renewals.due(good, 1000)
    assert [at for at in range(1000, 1200, 10) if renewals.due(lost, at)] == [1060, 1180]


def test_it_rests_and_begins_again(collector: Watched) -> None:
    next_one(collector, Sweep)
    (pid,) = collector.pids()
    while not collector.rest():
        time.sleep(0.01)  # the kernel is ending the child
    assert Host().process_start(pid) is None
    next_one(collector, Sweep)


def lines_of(*messages: str) -> str:
    """A child that says all of this at once, and then stays."""
    return f"import os, time; os.write(1, {chr(10).join((*messages, '')).encode()!r}); time.sleep(600)"


def test_nothing_is_taken_of_a_child_that_was_ended_because_its_gpus_were_renumbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = '{"type":"Inventory","driver":"d","count":4,"gpus":[]}'
    after = '{"type":"Inventory","driver":"d","count":3,"gpus":[],"left_out":[1]}'
    sweep = '{"type":"Sweep","at":1.0,"seconds":0.1,"readings":[{"index":2,"lost":true}]}'
    pretend_child(tmp_path, monkeypatch, lines_of(first, after, sweep))
    collector = Watched(None)
    next_one(collector, Inventory)
    assert collector.waiting == [], "the sweep is by the old indices"
    assert collector.pids() == []
    collector.close()


class SkippingClock(SystemClock):
    """Runs on by itself, and further when told to."""

    skipped_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped_s


def test_all_children_together_are_waited_for_as_long_as_one(
    library: Path, gpus: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SkippingClock()
    collector = Watched(library, clock)
    next_one(collector, Sweep)
    gpus("gpus 2", "hang 1")
    next_one(collector, NvmlHang)
    while not any(gpu.supervisor.alive for gpu in collector._unresponsive._gpus.values()):
        collector.poll()
    waited: list[float] = []

    def never_ends(process: subprocess.Popen[bytes], timeout: float) -> None:
        waited.append(timeout)
        clock.skipped_s += timeout
        raise subprocess.TimeoutExpired(process.args, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "wait", never_ends)
        collector.close()
    assert len(waited) >= 2, "the child and the trial"
    assert sum(waited) <= 1.0
    collector.close()
