"""GPUs on which the driver hangs, with real children on the fake driver library: the others stay visible, and it may come back."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from healthd.findings.facts import Moment
from healthd.findings.finding_ledger import FindingLedger
from healthd.gpu_monitoring.gpu_check_registry import make_gpu_checks
from healthd.gpu_monitoring.gpu_monitor import GpuMonitor
from healthd.gpu_monitoring.nvml_collector import NvmlCollector
from healthd.gpu_monitoring.simulated_gpus import SimulatedGpus
from healthd.gpu_monitoring.unresponsive_gpus import UnresponsiveGpus
from healthd.host import Host
from healthd.samples.nvml import GpuReading, Inventory, NvmlHang, Sweep, XidEvent
from healthd.samples.source import SourceReading, SourceState
from healthd.source_monitoring import daemon_sources
from healthd.supervision.child_supervisor import close_all_children
from healthd.thresholds import load_thresholds
from vocabulary.finding import Severity
from vocabulary.health import Health, health_of
from vocabulary.messages.wire import Gpu

PATIENCE_S = 120.0
NOW = Moment(1_700_000_000.0, 5.0)
KERNEL_LOG = SourceReading(source="kernel_log", state=SourceState.PRESENT, at=0.0)


class Node:
    """The collector with its real children, and the watch that judges what they say."""

    def __init__(self, library: Path, expected: tuple[Gpu, ...] = ()) -> None:
        self.host = Host(nvml_library=library)
        self.collector = NvmlCollector(self.host, 0.1, 1.0, start_deadline_s=5.0, restart_deadline_s=3.0)
        self.ledger = FindingLedger("unresponsive", "boot")
        self.watch = GpuMonitor(self.ledger, expected, {}, SimulatedGpus(self.ledger, {}))

    def run_until(self, that: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not that():
            assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}; {self.active()}"
            for sample in self.collector.poll():
                if not isinstance(sample, XidEvent):
                    self.watch.take(sample, self.now())
            time.sleep(0.01)  # the children are at work

    def sweep(self) -> None:
        """Let whole sweeps pass that began after now."""
        seen = self.watch.sweeps
        self.run_until(lambda: self.watch.sweeps > seen + 2, "two more sweeps")

    def now(self) -> Moment:
        return Moment(self.host.clock.wall(), self.host.clock.monotonic())

    def read(self) -> list[int]:
        return sorted(index for index, state in self.watch.states.items() if state.read.temperature_c is not None)

    def active(self) -> dict[str, Severity]:
        return {f"{f.kind} {f.component.index}": f.severity for f in self.ledger.active}

    def silent(self) -> tuple[str, ...]:
        return daemon_sources.list_silent_sources(
            KERNEL_LOG, daemon_sources.make_nvml_reading(self.watch, 60.0, self.now())
        )

    def health(self) -> Health:
        return health_of(self.ledger.active, sources_known=not self.silent())


@pytest.fixture
def start(library: Path, gpus: Callable[..., None]) -> Iterator[Callable[..., Node]]:
    gpus("gpus 4")
    nodes: list[Node] = []

    def start(expected: tuple[Gpu, ...] = ()) -> Node:
        nodes.append(Node(library, expected))
        return nodes[-1]

    yield start
    for node in nodes:
        node.collector.close()


def test_one_hung_gpu_blinds_no_other_and_stays_fatal(start: Callable[..., Node], gpus: Callable[..., None]) -> None:
    node = start()
    node.run_until(lambda: node.read() == [0, 1, 2, 3], "all four are read")
    gpus("gpus 4", "hang 2")
    node.run_until(lambda: node.read() == [0, 1, 3], "the others are read")
    assert node.health() in (Health.UNKNOWN, Health.UNHEALTHY), "nothing is known about GPU 2"
    node.run_until(lambda: "nvml/hang 2" in node.active(), "the trial hangs too")
    node.sweep()
    assert node.active() == {"nvml/slow 2": Severity.WARNING, "nvml/hang 2": Severity.FATAL}
    assert node.read() == [0, 1, 3]
    assert "GPU 2 does not answer" in str(node.silent())
    (hang,) = (f for f in node.ledger.active if f.code == "hang")
    assert hang.summary.startswith("NVML hangs in temperature_c on GPU 2")
    assert hang.component.pci == "0000:12:00.0"


def test_it_is_not_called_missing_and_comes_back_when_it_answers(
    start: Callable[..., Node], gpus: Callable[..., None]
) -> None:
    node = start()
    node.run_until(lambda: node.read() == [0, 1, 2, 3], "all four are read")
    gpus("gpus 4", "hang 2")
    node.run_until(lambda: "nvml/hang 2" in node.active(), "the trial hangs too")
    assert not [kind for kind in node.active() if kind.startswith("gpu_presence/")]
    node.watch.accept_present(node.now().wall)
    assert len(node.watch.expected) == 4, "a passed preflight does not make it forgotten"
    gpus("gpus 4")
    node.collector.retry_left_out()
    node.run_until(lambda: node.read() == [0, 1, 2, 3], "it is read again")
    assert node.active() == {}
    assert node.health() is Health.HEALTHY


def test_a_gpu_that_was_only_slow_is_back_after_its_first_trial(
    start: Callable[..., Node], gpus: Callable[..., None]
) -> None:
    node = start()
    node.run_until(lambda: node.read() == [0, 1, 2, 3], "all four are read")
    gpus("gpus 4", "hang 2 temperature")
    node.run_until(lambda: "nvml/slow 2" in node.active(), "it hangs once")
    gpus("gpus 4")
    node.run_until(lambda: node.read() == [0, 1, 2, 3], "it is read again")
    assert node.active() == {}


def test_two_hung_gpus_one_of_them_from_the_start(start: Callable[..., Node], gpus: Callable[..., None]) -> None:
    gpus("gpus 4", "hang 0", "hang 3 power_mw")
    node = start()
    both = {"nvml/hang 0", "nvml/hang 3"}
    node.run_until(lambda: node.read() == [1, 2] and both <= node.active().keys(), "both are left out")
    nameless = next(f for f in node.ledger.active if f.kind == "nvml/hang" and f.component.index == 0)
    assert nameless.component.name == "index 0", "it has never said who it is"
    assert node.health() is Health.UNHEALTHY
    gpus("gpus 4")
    node.collector.retry_left_out()
    node.run_until(lambda: node.read() == [0, 1, 2, 3], "both are back")
    node.sweep()
    assert node.active() == {}


def test_a_hang_that_belongs_to_no_gpu_takes_everything_out(
    start: Callable[..., Node], gpus: Callable[..., None]
) -> None:
    node = start()
    node.run_until(lambda: node.read() == [0, 1, 2, 3], "all four are read")
    gpus("gpus 4", "hang init")
    os.kill(node.collector.pids()[0], 9)
    node.run_until(lambda: "nvml/slow None" in node.active(), "nvmlInit hangs")
    assert node.read() == []
    assert node.health() is Health.UNKNOWN
    gpus("gpus 4")
    node.run_until(lambda: node.read() == [0, 1, 2, 3], "all four are read again")
    node.sweep()
    assert node.active() == {}


def test_renumbered_gpus_are_all_asked_again(start: Callable[..., Node], gpus: Callable[..., None]) -> None:
    node = start()
    node.run_until(lambda: node.read() == [0, 1, 2, 3], "all four are read")
    gpus("gpus 4", "hang 1")
    node.run_until(lambda: "nvml/hang 1" in node.active(), "the trial hangs too")
    gpus("gpus 3")
    os.kill(node.collector.pids()[0], 9)
    node.run_until(lambda: node.read() == [0, 1, 2], "index 1 means another GPU now")


FOUR = tuple(Gpu(index, f"GPU-{index}", f"0000:1{index}:00.0") for index in range(4))


def renumbered(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    return tuple(replace(gpu, index=index) for index, gpu in enumerate(gpus))


def hang_twice(watch: GpuMonitor, index: int) -> None:
    for at in (1.0, 2.0):
        watch.take(NvmlHang(NOW.wall + at, index, "temperature", 5.0, trial=at > 1.0), NOW)


@pytest.mark.parametrize("hung", range(4))
@pytest.mark.parametrize("named", [True, False])
def test_what_was_found_about_a_gpu_ends_when_a_preflight_passes_without_it(hung: int, *, named: bool) -> None:
    ledger = FindingLedger("unresponsive", "boot")
    watch = GpuMonitor(ledger, (), {}, SimulatedGpus(ledger, {}))
    rest = tuple(gpu for gpu in FOUR if gpu.index != hung)
    watch.take(Inventory("d", 4, FOUR if named else rest), NOW)
    lost = tuple(GpuReading(index=gpu.index, lost=gpu.index == hung, temperature_c=40) for gpu in FOUR)
    watch.take(Sweep(NOW.wall, 0.1, lost), NOW)
    hang_twice(watch, hung)
    watch.take(Inventory("d", 4, rest, left_out=(hung,)), NOW)
    assert {"nvml/slow", "nvml/hang"} <= {finding.kind for finding in ledger.active}
    watch.accept_present(NOW.wall)
    assert {"nvml/slow", "nvml/hang"} <= {finding.kind for finding in ledger.active}, "it is still there"
    watch.take(Inventory("d", 3, renumbered(rest)), NOW)
    watch.take(Sweep(NOW.wall, 0.1, tuple(GpuReading(index=index, temperature_c=40) for index in range(3))), NOW)
    watch.accept_present(NOW.wall)
    assert {finding.kind for finding in ledger.active} <= {"gpu_presence/vanished"}, "the proof itself clears that one"


def test_a_preflight_ends_nothing_about_a_gpu_that_is_there() -> None:
    ledger = FindingLedger("unresponsive", "boot")
    watch = GpuMonitor(ledger, (), {}, SimulatedGpus(ledger, {}))
    watch.take(Inventory("d", 4, FOUR), NOW)
    watch.take(Sweep(NOW.wall, 0.1, (GpuReading(index=1, lost=True),)), NOW)
    hang_twice(watch, 2)
    before = ledger.active
    watch.accept_present(NOW.wall)
    assert ledger.active == before


def test_a_hang_is_not_laid_to_the_gpu_that_has_the_index_now() -> None:
    ledger = FindingLedger("unresponsive", "boot")
    watch = GpuMonitor(ledger, (), {}, SimulatedGpus(ledger, {}))
    watch.take(Inventory("d", 4, FOUR), NOW)
    hang_twice(watch, 2)
    watch.take(Inventory("d", 3, renumbered((*FOUR[:2], FOUR[3]))), NOW)
    watch.take(NvmlHang(NOW.wall + 10, 2, "temperature", 5.0), NOW)
    of_third = [finding.kind for finding in ledger.active if finding.component.pci == FOUR[3].pci]
    assert of_third == ["nvml/slow"], "its first hang"


def test_a_trial_that_could_not_start_is_forgotten_when_no_gpu_is_left_out() -> None:
    host = Host()
    left_out = UnresponsiveGpus(host, 5.0)
    left_out.leave_out(1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        left_out.poll()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert list(host.start_failures.current) == ["healthd.nvml.trial"]
    left_out.readmit_all()
    assert not host.start_failures.current


BABBLING_TRIAL = """
import time
while True:
    print("NVML: a driver library that talks", flush=True)
    time.sleep(0.05)
"""


def test_only_its_own_word_is_an_answer_of_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "healthd" / "nvml"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "trial.py").write_text(BABBLING_TRIAL)
    monkeypatch.chdir(tmp_path)  # there, that is the trial
    host = Host()
    left_out = UnresponsiveGpus(host, 1.0)
    left_out.leave_out(1)
    deadline = time.monotonic() + PATIENCE_S
    while (trial := left_out.poll()) is None:
        assert time.monotonic() < deadline, "the trial never ends"
        time.sleep(0.01)  # it is at work
    close_all_children(left_out.supervisors, host.clock)
    assert not trial.answered
    assert trial.seconds > 1.0
    assert left_out.left_out == (1,)


def test_what_was_found_about_a_gpu_stays_while_it_is_left_out() -> None:
    ledger = FindingLedger("unresponsive", "boot")
    watch = GpuMonitor(ledger, (), make_gpu_checks(load_thresholds()), SimulatedGpus(ledger, {}))
    gpus = tuple(Gpu(index, f"GPU-{index}", f"0000:1{index}:00.0") for index in range(2))
    pending = GpuReading(index=1, temperature_c=40, remap_pending=True, rows_remapped_uncorrected=1)
    watch.take(Inventory("d", 2, gpus), NOW)
    watch.take(Sweep(NOW.wall, 0.1, (GpuReading(index=0), pending)), NOW)
    before = {finding.kind for finding in ledger.active}
    assert "row_remap/pending" in before
    watch.take(Inventory("d", 2, gpus[:1], left_out=(1,)), NOW)
    watch.take(Sweep(NOW.wall, 0.1, (GpuReading(index=0),)), NOW)
    assert {finding.kind for finding in ledger.active} == before


@pytest.fixture
def frozen() -> Iterator[Callable[[bool], Path]]:
    """A file system that can be frozen: who writes to it then waits where no signal reaches."""
    place = Path(tempfile.mkdtemp(prefix="frz", dir="/tmp"))  # a scenario has room for short paths
    image, mount = place / "i", place / "m"
    mount.mkdir()
    image.write_bytes(b"")
    os.truncate(image, 8 << 20)
    try:
        subprocess.run(["/sbin/mkfs.ext4", "-q", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, mount], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs root, mkfs.ext4 and a loop device")
    (mount / "f").touch()

    def freeze(wanted: bool) -> Path:  # noqa: FBT001 - a switch
        subprocess.run(["fsfreeze", "-f" if wanted else "-u", mount], check=wanted, capture_output=True)
        return mount / "f"

    yield freeze
    freeze(False)
    subprocess.run(["umount", "--lazy", mount], check=True)  # a child may still be about to end
    shutil.rmtree(place)


def test_children_that_no_signal_can_end_do_not_pile_up(
    start: Callable[..., Node], gpus: Callable[..., None], frozen: Callable[[bool], Path]
) -> None:
    node = start()
    node.run_until(lambda: node.read() == [0, 1, 2, 3], "all four are read")
    path = frozen(True)
    gpus("gpus 4", f"writes.0 {path}", f"writes.1 {path}", f"writes.2 {path}")
    hung = {f"nvml/hang {index}" for index in range(3)}
    node.run_until(lambda: node.read() == [3] and hung <= node.active().keys(), "three are left out")
    assert node.collector.abandoned == 6, "one child and one trial for each"
    for _ in range(3):
        node.collector.retry_left_out()
        node.sweep()
    assert node.collector.abandoned == 6, "no further trial while the last one cannot be ended"
    gpus("gpus 4")
    frozen(False)
    node.run_until(lambda: node.read() == [0, 1, 2, 3], "all are back")
    assert node.collector.abandoned == 0
