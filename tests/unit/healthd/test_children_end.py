"""The stop of healthd does not wait long for children that SIGKILL does not reach."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from healthd.collectors.pressure import PressureSample
from healthd.config import LogSource
from healthd.host import Host
from healthd.kernel_log.log_reader import KernelLogReader
from healthd.source_monitoring.source_prober import SourceProber, SourceSchedule
from healthd.supervision.child_supervisor import END_S, close_all_children
from vocabulary.clock import ManualClock


def test_children_of_different_parents_are_waited_for_as_long_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "journalctl"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    clock, waited = ManualClock(), []
    clock.advance(100)
    probers = [
        SourceProber(Host(clock=clock), {"pressure": SourceSchedule(60, PressureSample)}, deadline_s=60)
        for _ in range(2)
    ]
    for prober in probers:
        prober.poll()
    log = KernelLogReader(tmp_path / "kmsg", "boot", None, clock, means=LogSource.JOURNAL)
    log.read(1)
    really_wait = subprocess.Popen.wait

    def never_ends(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        really_wait(process, 60)
        assert timeout is not None, "it might never end"
        waited.append(timeout)
        clock.advance(timeout)
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", never_ends)
    close_all_children([*probers, log], clock)
    assert waited == [END_S, 0.0, 0.0]
