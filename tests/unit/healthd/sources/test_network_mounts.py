from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from healthd.checks.network_mount_checks import Limits, NetworkMountsCheck
from healthd.collectors.machine_access import MachineAccess, SourceAbsent
from healthd.collectors.network_mounts import NetworkMount, NetworkMountsSample, read_network_mounts
from healthd.findings.facts import Moment, Raise

Build = Callable[[Mapping[str, str]], MachineAccess]


def sample(trouble: str) -> NetworkMountsSample:
    return NetworkMountsSample((NetworkMount("/home", "server:/home", "nfs4", trouble),))


def test_each_mount_over_the_network_is_asked(machine: Build) -> None:
    table = "server:/home /home nfs4 rw 0 0\nmgs:/work /work lustre rw 0 0\n/dev/sda1 / ext4 rw 0 0\n"
    found = read_network_mounts(machine({"/proc/1/mounts": table, "/home/x": ""}), {}).mounts
    assert [(mount.mount, mount.trouble, mount.answers) for mount in found] == [
        ("/home", "", True),
        ("/work", "ENOENT", False),
    ]


def test_a_machine_with_local_disks_only_is_a_state(machine: Build) -> None:
    with pytest.raises(SourceAbsent, match="no network file system"):
        read_network_mounts(machine({"/proc/1/mounts": "/dev/sda1 / ext4 rw 0 0\n"}), {})


class SlowMachine(MachineAccess):
    """One file system's process stands still, as those of a dead server do."""

    def stop(self, path: str) -> None:
        """Have an asker that never ends."""
        process = os.fork()
        if process == 0:
            signal.pause()
        self._asking[path] = process

    def left_behind(self) -> int:
        """How many askers are there."""
        return len(self._asking)

    def end(self) -> None:
        """Let them go."""
        for process in self._asking.values():
            os.kill(process, signal.SIGKILL)


def test_a_silent_one_is_told_from_the_others_and_leaves_one_process_behind(tmp_path: Path) -> None:
    machine = SlowMachine(str(tmp_path))
    (tmp_path / "work").mkdir()
    machine.stop("/home")
    for _ in range(2):  # the deadline is the time a busy machine may need to fork and to ask
        assert machine.answers(["/home", "/work"], 3.0) == {"/home": "no answer", "/work": ""}
    assert machine.left_behind() == 1
    machine.end()
    assert machine.answers(["/home"], 5.0)["/home"].startswith("error")


@pytest.mark.parametrize("trouble", ["no answer", "ESTALE"])
def test_silence_counts_once_it_lasts_and_ends_with_an_answer(trouble: str) -> None:
    check = NetworkMountsCheck(Limits(raise_after_s=60, clear_after_s=30))
    said = {}
    for at in (0, 30, 60):
        said[at] = [fact.code for fact in check.judge(sample(trouble), Moment(0, at)) if isinstance(fact, Raise)]
    assert said == {0: [], 30: [], 60: ["silent"]}
    check.judge(sample(""), Moment(0, 90))
    assert check.judge(sample(""), Moment(0, 121)) == []
