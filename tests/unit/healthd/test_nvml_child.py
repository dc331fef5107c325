"""The NVML child itself, a real process on the fake driver library: what it says, line by line, and when it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from healthd.gpu_monitoring.nvml_collector import NvmlCollector
from healthd.host import Host
from healthd.samples.nvml import GpuConstants, GpuReading, Inventory, NvmlSample
from healthd.supervision.child_call_page import CALL_PAGE_BYTES, ChildCallPage
from vocabulary.messages.wire import Gpu

ENTRY = "import healthd.nvml.child, sys; print(*sorted(sys.modules))"

PARENT = """
import os, subprocess, sys, time
from healthd.supervision.child_call_page import CALL_PAGE_BYTES, ChildCallPage
descriptor = os.memfd_create("call_page")
os.ftruncate(descriptor, CALL_PAGE_BYTES)
command = [sys.executable, "-m", "healthd.nvml.child", str(descriptor), sys.argv[1], "1"]
child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(descriptor,))
print(child.pid, flush=True)
call_page = ChildCallPage(descriptor)
while call_page.read()[0] != 1:
    time.sleep(0.01)
print(*call_page.read(), flush=True)
time.sleep(600)
"""


class Child:
    """One child, and its messages in order."""

    def __init__(self, library: Path, scenario: Path, interval_s: float) -> None:
        descriptor = os.memfd_create("call_page")
        os.ftruncate(descriptor, CALL_PAGE_BYTES)
        self.call_page = ChildCallPage(descriptor)
        command = [sys.executable, "-m", "healthd.nvml.child", str(descriptor), str(library), str(interval_s)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(descriptor,),
            env={**os.environ, "FAKE_NVML_SCENARIO": str(scenario)},
        )
        os.close(descriptor)

    def next(self, kind: str, that: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message["type"] == kind and that(message):
                return message
        raise AssertionError(f"the child ended without such a {kind}")

    def look(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"!")
        self.process.stdin.flush()

    def leave(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(30)


@pytest.fixture
def start(library: Path, tmp_path: Path) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def start(interval_s: float = 0.05) -> Child:
        children.append(Child(library, tmp_path / "scenario", interval_s))
        return children[-1]

    yield start
    for child in children:
        child.process.kill()
        child.process.wait()
        for pipe in (child.process.stdin, child.process.stdout):
            if pipe is not None:
                pipe.close()
        child.call_page.close()


def test_it_loads_nothing_that_it_does_not_need() -> None:
    done = subprocess.run([sys.executable, "-c", ENTRY], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "pynvml" in loaded
    assert not loaded & {"msgspec", "dataclasses", "pathlib", "asyncio", "logging", "inspect", "vocabulary"}


def test_it_says_nothing_that_the_samples_do_not_know(start: Callable[..., Child], gpus: Callable[..., None]) -> None:
    gpus("gpus 2")
    child = start()
    inventory = child.next("Inventory")
    assert set(inventory) - {"type"} == set(Inventory.__struct_fields__)
    assert all(set(gpu) == set(Gpu.__struct_fields__) for gpu in inventory["gpus"])
    assert all(set(constants) <= set(GpuConstants.__struct_fields__) for constants in inventory["constants"])
    for _ in range(20):
        for reading in child.next("Sweep")["readings"]:
            assert set(reading) <= set(GpuReading.__struct_fields__)
            assert "errors" not in reading, "what a driver does not have is no error"


def test_the_first_sweep_tells_all_that_faults_show_and_later_ones_only_what_is_cheap(
    start: Callable[..., Child], gpus: Callable[..., None]
) -> None:
    gpus("gpus 8")
    child = start()
    first = child.next("Sweep")["readings"]
    assert all("remap_pending" in reading for reading in first)
    rare = ["ecc_corrected_aggregate" in reading for reading in first]
    assert rare == [True, *[False] * 7], "one GPU at a time"
    for _ in range(5):
        readings = child.next("Sweep")["readings"]
        assert all(reading["temperature_c"] == 41 for reading in readings)
        assert not any("remap_pending" in reading for reading in readings)


def test_when_told_to_it_looks_at_once_and_again(start: Callable[..., Child], gpus: Callable[..., None]) -> None:
    gpus("gpus 2")
    child = start(interval_s=3600.0)
    child.next("Sweep")
    child.look()
    for _ in range(2):
        readings = child.next("Sweep")["readings"]
        assert all("recovery_action" in reading for reading in readings)
    assert child.leave() == 0


def test_it_ends_with_its_parent(start: Callable[..., Child], gpus: Callable[..., None]) -> None:
    gpus("gpus 2")
    child = start()
    child.next("Sweep")
    assert child.leave() == 0


def test_it_dies_with_its_parent_even_while_it_hangs(library: Path, gpus: Callable[..., None], tmp_path: Path) -> None:
    gpus("gpus 2", "hang 1")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(library)],
        stdout=subprocess.PIPE,
        env={**os.environ, "FAKE_NVML_SCENARIO": str(tmp_path / "scenario")},
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert parent.stdout.readline() == b"1 handle\n"
    parent.kill()
    parent.wait()
    parent.stdout.close()
    while alive(pid):
        time.sleep(0.01)  # the kernel is ending it


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_another_gpu_in_a_slot_is_enumerated_anew(
    library: Path, gpus: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML_SCENARIO", str(tmp_path / "scenario"))
    collector = NvmlCollector(Host(nvml_library=library), interval_s=0.2, deadline_s=10.0)
    others: list[NvmlSample] = []

    def inventory() -> Inventory:
        while True:
            for sample in collector.poll():
                if isinstance(sample, Inventory):
                    return sample
                others.append(sample)
            time.sleep(0.01)  # the child is at work

    gpus("gpus 60")  # so many that every second one of them is asked who it is
    assert inventory().gpus[1].uuid == "GPU-fake-0001"
    gpus("gpus 60", "uuid.1 GPU-another")
    assert inventory().gpus[1].uuid == "GPU-another"
    assert {type(sample).__name__ for sample in others} == {"Sweep"}, "that is no failure of NVML"
    assert collector.starts == 2
    collector.close()


def test_a_gpu_that_would_not_say_who_it_is_and_then_does_is_enumerated(
    start: Callable[..., Child], gpus: Callable[..., None]
) -> None:
    gpus("gpus 60", "lost 0")
    child = start(interval_s=0.2)
    assert len(child.next("Inventory")["gpus"]) == 59
    gpus("gpus 60")
    assert child.next("GpusChanged")["reason"] == "GPU 0 now reports its identity: GPU-fake-0000"
    assert child.process.wait(30) == 0


def test_a_child_whose_parent_was_killed_ends_without_a_word() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code = "import threading; from healthd.nvml.child import _make_sender; _make_sender(threading.Lock())({'type': 'Inventory'})"
    done = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
