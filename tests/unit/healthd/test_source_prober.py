"""The source child for real: collectors that work, are absent, fail, hang, babble."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from healthd.collectors.nccl_ras import NcclRasSample
from healthd.collectors.pressure import PressureSample
from healthd.findings.facts import Moment
from healthd.findings.finding_ledger import FindingLedger
from healthd.host import Host
from healthd.samples.source import SourceReading, SourceState
from healthd.source_monitoring.source_monitor import SourceMonitor
from healthd.source_monitoring.source_prober import SourceProber, SourceSchedule
from tests.nodes.nccl_ras.server import RasServer

PSI = "some avg10=0.00 avg60=1.50 avg300=0.00 total=900\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/pressure/io").write_text(PSI)
    return tmp_path


@pytest.fixture
def probers() -> Iterator[list[SourceProber]]:
    made: list[SourceProber] = []
    yield made
    for prober in made:
        prober.close()


def heard(prober: SourceProber, that: Callable[[SourceReading], bool]) -> SourceReading:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for reading in prober.poll():
            if that(reading):
                return reading
        time.sleep(0.01)  # the child is at work
    raise AssertionError("nothing of that kind was heard")


def test_samples_arrive_whole_and_again(root: Path, probers: list[SourceProber]) -> None:
    prober = SourceProber(Host(root=root), {"pressure": SourceSchedule(0.05, PressureSample)}, deadline_s=5)
    probers.append(prober)
    reading = heard(prober, lambda _: True)
    assert (reading.source, reading.state) == ("pressure", SourceState.PRESENT)
    assert isinstance(reading.sample, PressureSample)
    assert reading.sample.stalls[0].some_us == 900
    (root / "proc/pressure/io").write_text(PSI.replace("900", "901"))
    heard(prober, lambda reading: reading.sample.stalls[0].some_us == 901)


def test_what_is_absent_or_broken_is_a_state_and_spares_the_others(root: Path, probers: list[SourceProber]) -> None:
    plans = {"pressure": SourceSchedule(0.05, PressureSample), "nonsense": SourceSchedule(0.05, PressureSample)}
    prober = SourceProber(Host(root=root), plans, deadline_s=5)
    probers.append(prober)
    failing = heard(prober, lambda reading: reading.source == "nonsense")
    assert failing.state is SourceState.FAILING
    assert "healthd.collectors.nonsense" in failing.reason
    heard(prober, lambda reading: reading.state is SourceState.PRESENT)
    (root / "proc/pressure/io").unlink()
    assert "psi=1" in heard(prober, lambda reading: reading.state is SourceState.ABSENT).reason


def test_a_source_that_hangs_is_named_and_left_out_while_the_others_go_on(
    root: Path, probers: list[SourceProber]
) -> None:
    plans = {"pressure": SourceSchedule(0.05, PressureSample), "kernel_log": SourceSchedule(0.05, PressureSample)}
    prober = SourceProber(Host(root=root), plans, deadline_s=0.5)
    probers.append(prober)
    heard(prober, lambda reading: reading.source == "pressure")
    (pid,) = prober.pids()
    prober._supervisor._child.call_page.write(None, f"kernel_log {time.monotonic():.3f}")  # type: ignore[union-attr]  # as if
    os.kill(pid, 19)  # it stops, as a process in an endless read does
    hung = heard(prober, lambda reading: reading.state is SourceState.HUNG)
    assert hung.source == "kernel_log"
    again = heard(prober, lambda _: True)
    assert again.source == "pressure"
    assert prober._running == {"pressure"}


def test_a_child_that_is_killed_is_replaced(root: Path, probers: list[SourceProber]) -> None:
    prober = SourceProber(Host(root=root), {"pressure": SourceSchedule(0.05, PressureSample)}, deadline_s=5)
    probers.append(prober)
    heard(prober, lambda _: True)
    (pid,) = prober.pids()
    os.kill(pid, 9)
    while prober.pids() == [pid]:
        prober.poll()
    heard(prober, lambda _: True)


def test_the_child_and_its_successor_know_the_processes_on_gpus(probers: list[SourceProber]) -> None:
    """The source asks within the network namespace of this process: once for it, and not at all without it."""
    with RasServer(lambda: b"") as server:
        options = {"address": (f"127.0.0.1:{server.port}",)}
        prober = SourceProber(Host(), {"nccl_ras": SourceSchedule(0.05, NcclRasSample, options)}, deadline_s=20)
        probers.append(prober)
        assert heard(prober, lambda _: True).sample.asked == 0
        prober.take_gpu_pids({os.getpid(): False, 1 << 22: True})
        heard(prober, lambda reading: reading.sample.asked == 1)
        (pid,) = prober.pids()
        os.kill(pid, 9)
        while prober.pids() == [pid]:
            prober.poll()
        heard(prober, lambda reading: reading.sample.asked == 1)
        prober.take_gpu_pids({})
        for _ in range(12):  # it asks at every tenth reading, as nobody answers
            heard(prober, lambda reading: reading.sample.asked == 0)


def test_garbage_is_a_failing_source(root: Path) -> None:
    prober = SourceProber(Host(root=root), {"pressure": SourceSchedule(1, PressureSample)}, deadline_s=5)
    assert prober._reading(b"hello").state is SourceState.FAILING
    wrong = b'{"source":"pressure","state":"present","at":1,"seconds":0,"sample":[["io"]]}'
    assert "wrong type" in prober._reading(wrong).reason


def test_trouble_of_a_source_is_a_finding_until_it_is_read_again() -> None:
    ledger = FindingLedger("n1", "b1")
    watch = SourceMonitor(ledger, {})

    def take(source: str, state: SourceState) -> set[str]:
        watch.take(SourceReading(source=source, state=state, at=1.0, reason="why"), Moment(1.0, 1.0))
        return {f"{finding.kind} {finding.component.name}" for finding in ledger.active}

    assert take("a", SourceState.ABSENT) == set(), "a machine without it is well"
    assert take("a", SourceState.FAILING) == {"source/failing a"}
    assert take("b", SourceState.HUNG) == {"source/failing a", "source/hung b"}
    assert take("a", SourceState.PRESENT) == {"source/hung b"}
    assert take("a", SourceState.ABSENT) == {"source/hung b", "source/vanished a"}
    assert take("b", SourceState.PRESENT) == {"source/vanished a"}


@pytest.mark.parametrize(
    "line",
    [
        b'{"source":"pressure\xff","state":"present","at":1.0,"seconds":0.1,"sample":{}}',
        b'{"source":"pressure","state":"present","at":1.0,"seconds":0.1,"sample":{"stalls":["\xff"]}}',
        b'{"source":"pressure","state":"failing","at":1.0,"seconds":0.1,"reason":"\\udcff"}',
    ],
)
def test_bytes_of_the_child_that_are_no_text_are_a_failing_source(line: bytes) -> None:
    prober = SourceProber(Host(), {"pressure": SourceSchedule(0.05, PressureSample)}, deadline_s=5)
    assert prober._reading(line).state is SourceState.FAILING
