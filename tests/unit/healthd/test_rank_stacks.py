"""The stacks of local ranks: whichever source answers, and read again only now and then."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.collectors import rank_stacks, stack_watcher
from healthd.collectors.beacons import BeaconCollector
from healthd.collectors.rank_stacks import LocalRank, read_rank_stacks
from healthd.collectors.stack_sockets import RankProcess
from healthd.collectors.stack_watcher import EVERY_S, KEPT_S, STILL_S, StackWatcher, StillRank
from healthd.daemon_status import Status
from healthd.telemetry.evidence_bundle import collect_evidence
from healthd.telemetry.telemetry_history import Telemetry
from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from vocabulary.clock import ManualClock
from vocabulary.messages.evidence_bundle import RankStack

NOW = 1_700_000_000.0


@pytest.fixture
def sleeper() -> Iterator[RankProcess]:
    with subprocess.Popen(["sleep", "600"]) as process:
        while not re.search(r"^State:\tS", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE):
            time.sleep(0.01)  # it has not begun to sleep
        yield RankProcess(process.pid, os.geteuid())
        process.kill()


def install_py_spy(directory: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    program = directory / "py-spy"
    program.write_text(f"#!{sys.executable}\nimport sys, time\n{code}\n")
    program.chmod(0o755)
    monkeypatch.setattr(rank_stacks, "_PROGRAM_PLACES", str(directory))


def test_without_anything_else_proc_tells_the_state(
    sleeper: RankProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_stacks, "_PROGRAM_PLACES", str(tmp_path))
    (stack,) = read_rank_stacks(str(tmp_path), [LocalRank("j", 1, 2, sleeper)], NOW)
    assert (stack.job, stack.attempt, stack.rank, stack.pid, stack.at) == ("j", 1, 2, sleeper.pid, NOW)
    assert (stack.source, stack.frames[0], stack.place) == ("proc", "state S (kernel:0)", "other")


def test_py_spy_is_used_where_it_is_installed(
    sleeper: RankProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = '{"name": "__next__", "filename": "/x/site-packages/torch/utils/data/dataloader.py", "line": 7}'
    document = f"""'[{{"os_thread_id": ' + sys.argv[-1] + ', "frames": [{frame}]}}]'"""
    install_py_spy(
        tmp_path,
        monkeypatch,
        f"assert sys.argv[1:-1] == {['dump', '--nonblocking', '--json', '--pid']}\nprint({document})",
    )
    (stack,) = read_rank_stacks(str(tmp_path), [LocalRank("j", 1, 2, sleeper)], NOW)
    assert (stack.source, stack.frames) == ("py-spy", ("__next__ (torch/utils/data/dataloader.py:7)",))
    assert stack.place == "data"


@pytest.mark.parametrize("code", ["time.sleep(600)", "while True: print('x' * 65536)", "sys.exit(1)", "print('[[[')"])
def test_a_py_spy_that_fails_is_given_up(
    sleeper: RankProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    install_py_spy(tmp_path, monkeypatch, code)
    monkeypatch.setattr(rank_stacks, "PY_SPY_S", 0.5)
    (stack,) = read_rank_stacks(str(tmp_path), [LocalRank("j", 1, 2, sleeper)], NOW)
    assert stack.source == "proc"


def test_a_process_that_has_ended_has_no_stack(tmp_path: Path) -> None:
    assert read_rank_stacks(str(tmp_path), [LocalRank("j", 1, 2, RankProcess(2**22 + 1, 0))], NOW) == ()


class Reader:
    """Reads what it is told to, and counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.calls = "data", "{}"
        self.asked: list[tuple[int, bool]] = []
        monkeypatch.setattr(stack_watcher, "read_rank_stacks", self)

    def __call__(
        self, _: str, ranks: list[LocalRank], at: float, with_calls: set[RankProcess]
    ) -> tuple[RankStack, ...]:
        self.asked += [(rank.rank, rank.process in with_calls) for rank in ranks]
        calls = {rank: self.calls if rank.process in with_calls else "" for rank in ranks}
        return tuple(
            RankStack(*rank[:3], rank.process.pid, at, "torch", (), self.place, calls[rank])
            for rank in ranks
            if self.place
        )


def still(number: int, completed: int = 5) -> StillRank:
    return StillRank(LocalRank("j", 0, number, RankProcess(100 + number, 0)), (completed, "forward"))


def look(watcher: StackWatcher, ranks: list[StillRank], now: float) -> dict[StillRank, str]:
    watcher.look(ranks, now)
    watcher.wait(10)
    return watcher.look(ranks, now)


def test_a_still_rank_is_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, watcher = Reader(monkeypatch), StackWatcher("")
    assert look(watcher, [still(3)], NOW) == {still(3): "data"}
    look(watcher, [still(3)], NOW + EVERY_S - 1)
    assert reader.asked == [(3, True)]
    reader.place = "cuda_sync"
    assert look(watcher, [still(3)], NOW + EVERY_S + 1) == {still(3): "cuda_sync"}
    assert reader.asked == [(3, True), (3, False)]
    assert watcher.stacks[0].calls == "{}"  # as read first


def test_an_answer_that_no_longer_comes_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, watcher = Reader(monkeypatch), StackWatcher("")
    look(watcher, [still(3)], NOW)
    reader.place = ""
    assert look(watcher, [still(3)], NOW + EVERY_S + 1) == {}


def test_a_rank_that_went_on_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, watcher = Reader(monkeypatch), StackWatcher("")
    look(watcher, [still(3)], NOW)
    assert watcher.look([still(3, completed=6)], NOW + 1) == {}
    watcher.wait(10)
    assert reader.asked == [(3, True), (3, True)]
    assert len(watcher.stacks) == 1  # one for each rank


def test_the_stack_of_an_aborted_rank_is_kept_for_its_evidence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Reader(monkeypatch)
    watcher = StackWatcher("")
    look(watcher, [still(3)], NOW)
    look(watcher, [], NOW + KEPT_S - 1)
    telemetry = Telemetry(NOW + 60, NOW, None, (), ())
    bundle = collect_evidence(Status(node="n1", boot_id="b", at=NOW), telemetry, tmp_path, None, watcher.stacks)
    assert [(stack.rank, stack.place, stack.at) for stack in bundle.stacks] == [(3, "data", NOW)]
    look(watcher, [], NOW + KEPT_S + 1)
    assert watcher.stacks == ()


def test_a_rank_reports_where_it_waits_once_it_stands_still(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reader, clock = Reader(monkeypatch), ManualClock(NOW)
    tmp_path.chmod(0o700)
    beacon = Beacon.create(str(tmp_path), RankPlacement("j", 0, 3, 4), clock)
    beacon.begin_step(7)
    collector = BeaconCollector(tmp_path)

    def reported(now: float) -> str:
        collector.read(now)
        collector._stacks.wait(10)
        return collector.read(now).ranks[0].stack

    assert reported(NOW + STILL_S - 1) == ""
    assert reader.asked == []
    assert reported(NOW + STILL_S + 1) == "data"
    beacon.end_step()
    assert reported(NOW + STILL_S + 2) == ""  # between two steps
    beacon.close()


def test_evidence_reads_ranks_that_moved(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    beacon = Beacon.create(str(tmp_path), RankPlacement("j", 0, 3, 4))
    bundle = collect_evidence(Status(node="n1", boot_id="b", at=NOW), Telemetry(NOW, NOW, None, (), ()), tmp_path)
    (stack,) = bundle.stacks
    assert (stack.job, stack.rank, stack.pid, stack.source) == ("j", 3, os.getpid(), "proc")
    beacon.close()
