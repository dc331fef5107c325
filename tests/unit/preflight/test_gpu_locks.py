from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from preflight.execution.device_assignment import DeviceAssignments, assign_host_devices
from preflight.execution.progress_output import SilentProgress
from preflight.execution.qualification import qualify_node
from preflight.execution.worker_pool import GpuLocks
from preflight.plan import Plan, Scope, Spec
from preflight.results import Verdict
from vocabulary.clock import SystemClock

GPU = f"GPU-{os.getpid()}"  # tests beside this one claim others


def test_a_gpu_is_claimed_once_and_the_holder_is_named() -> None:
    first, second = GpuLocks(), GpuLocks()
    assert first.hold([GPU, f"{GPU}b"]) == ""
    assert second.hold([f"{GPU}c", f"{GPU}b"]) == (
        f"another preflight, process {os.getpid()}, holds {GPU}b: wait until it ends"
    )
    second.close()
    assert second.hold([f"{GPU}c"]) == ""
    first.close()
    assert second.hold([GPU, f"{GPU}b"]) == ""
    second.close()


def test_a_claim_ends_with_its_process_however_that_ends() -> None:
    code = (
        "import sys, time\nfrom preflight.execution.worker_pool import GpuLocks\n"
        f"claims = GpuLocks()\nprint(repr(claims.hold([{GPU!r}])), flush=True)\ntime.sleep(600)\n"
    )
    claims = GpuLocks()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "''\n"
        assert f"process {other.pid}" in claims.hold([GPU])
        claims.close()
        other.kill()
    assert claims.hold([GPU]) == ""
    claims.close()


def test_a_holder_that_answers_nobody_is_not_waited_for() -> None:
    claims, other = GpuLocks(), GpuLocks()
    assert claims.hold([GPU]) == ""
    waiting = []
    for _ in range(socket.SOMAXCONN + 8):
        waiting.append(socket.socket(socket.AF_UNIX))
        waiting[-1].setblocking(False)
        try:
            waiting[-1].connect(f"\0gpu-healthd/preflight/{GPU}")
        except BlockingIOError:
            break
    assert other.hold([GPU]) == f"another preflight holds {GPU}: wait until it ends"
    for each in (*waiting, claims, other):
        each.close()


def test_two_preflights_do_not_test_one_gpu_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seats = tuple(msgspec.structs.replace(seat, uuid=f"{GPU}-{seat.index}") for seat in assign_host_devices(2))
    monkeypatch.setattr("preflight.execution.worker_pool.assign_devices", lambda *_: DeviceAssignments(seats=seats))
    claims = GpuLocks()
    claims.hold([f"{GPU}-1"])
    plan = Plan("gate", (Spec("memory_pattern", Scope.DEVICE, 60.0, (), {"gate": 1.0}),), {})
    document = qualify_node(plan, "n1", (), tmp_path, SystemClock(), SilentProgress())
    claims.close()
    assert document.verdict is Verdict.MISCONFIGURED
    assert f"another preflight, process {os.getpid()}, holds {GPU}-1" in document.reason
