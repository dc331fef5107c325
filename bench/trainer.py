"""What the trainer side costs: `python bench/trainer.py [--host-only]`. A table; nothing is asserted.

Where NVIDIA's `nvidia-resiliency-ext` can be imported, what its ways of telling cost stands beside it.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

from bench import nvrx
from healthctl.demo.training import COMMAND
from healthd.trainer.agreement import LocalStore
from healthd.trainer.beacons.beacon import Beacon, MailboxOrder, RankPlacement, read_all_pages, read_page
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.beacons.page_reader import BeaconView
from healthd.trainer.beacons.step_ring import summarize_durations
from healthd.trainer.beacons.step_writer import StepWriter
from healthd.trainer.framework import NoFramework
from healthd.trainer.guard import Guard, TrainingStep

CALLS = 50_000
ORDER_RUNS, RANKS, PACE_SECONDS = 3, 2, 0.05
DEADLINE_SECONDS = 120.0


def samples_of(call: Callable[[], object], calls: int = CALLS) -> list[float]:
    """Nanoseconds of single calls, in order of size; what it takes to look at the clock is not in them."""
    empty, samples = [], []
    clock = time.perf_counter_ns
    for _ in range(calls // 10):
        began = clock()
        empty.append(clock() - began)
    for _ in range(calls):
        began = clock()
        call()
        samples.append(clock() - began)
    look = statistics.median(empty)
    return sorted(sample - look for sample in samples)


def time_calls(call: Callable[[], object], calls: int = CALLS) -> tuple[float, float]:
    """Their p50 and p99."""
    ordered = samples_of(call, calls)
    return statistics.median(ordered), ordered[int(len(ordered) * 0.99)]


def print_cost_row(what: str, p50: float, p99: float, unit: str) -> None:
    print(f"{what:<62}{p50:>12.1f}{p99:>12.1f}  {unit}")


def host_time(directory: str) -> None:
    for name, writer in step_writers().items():
        print(f"steps written in {name}")
        step_time(directory, writer)
    with open_guard(directory, StepWriter) as (beacon, _):
        view = read_page(beacon.path)
        print_cost_row("daemon: read one page (ring unparsed)", *time_calls(lambda: read_page(beacon.path), 5000), "ns")
        print_cost_row("daemon: parse the newest 64 steps", *time_calls(lambda: view.steps(64), 2000), "ns")
        print_cost_row(
            "daemon: medians of 64 steps", *time_calls(lambda: summarize_durations(view.steps(64)), 2000), "ns"
        )
        print_cost_row("daemon: parse the 1024 steps of a ring", *time_calls(view.steps, 300), "ns")


def step_writers() -> dict[str, type[StepWriter]]:
    """The writer in Python, and the one in C where it is built."""
    writers = {"Python": StepWriter}
    with contextlib.suppress(ImportError):
        from healthd.trainer.beacons._step_writer import StepWriter as InC  # noqa: PLC0415 - it may be missing

        writers["C"] = InC
    return writers


def step_time(directory: str, writer: type[StepWriter]) -> None:
    with open_guard(directory, writer) as (beacon, guard):

        def bare() -> None:
            beacon.begin_step(1)
            beacon.end_step()

        print_cost_row("beacon: begin_step + end_step", *time_calls(bare), "ns")
        print_cost_row("beacon: poll of an empty mailbox", *time_calls(beacon.poll), "ns")
        for what, step in guard_steps(guard).items():
            print_cost_row(f"guard: {what}", *time_calls(step), "ns")


def guard_steps(guard: Guard) -> dict[str, Callable[[], None]]:
    """A step with ever more told; each is a whole step with its context manager, its poll and its entry in the ring."""

    def plain() -> None:
        with guard.step(1) as s:
            _ = s.checkpoint_due

    def one_section() -> None:
        with guard.step(1) as s, s.section("forward"):
            pass

    def report() -> None:
        with guard.step(1) as s:
            s.report(loss=2.5, grad_norm=1.0, tokens=4096)

    def sections() -> None:
        with guard.step(1) as s:
            seven_sections(s)

    def all_of_it() -> None:
        with guard.step(1) as s:
            seven_sections(s)
            s.report(loss=2.5, grad_norm=1.0, tokens=4096)

    return {
        "a step": plain,
        "a step, one section": one_section,
        "a step, a report": report,
        "a step, all seven sections": sections,
        "a step, all seven sections and a report": all_of_it,
    }


@contextlib.contextmanager
def open_guard(directory: str, writer: type[StepWriter]) -> Iterator[tuple[Beacon, Guard]]:
    """A page in `directory` of the only rank of a job, written by `writer`, and its guard."""
    place = RankPlacement("bench", 0, 0, 1)
    with patch("healthd.trainer.beacons.beacon.StepWriter", writer):
        beacon = Beacon.create(directory, place)
    with Guard(place, beacon, LocalStore(), framework=NoFramework(), termination_seconds=0.0) as guard:
        yield beacon, guard
    beacon.close()


def seven_sections(s: TrainingStep) -> None:
    with s.section("data"):
        pass
    with s.section("forward"):
        pass
    with s.section("backward"):
        pass
    with s.section("communication"):
        pass
    with s.section("optimizer"):
        pass
    with s.section("checkpoint"):
        pass
    with s.section("other"):
        pass


def import_time() -> None:
    for statement in ("pass", "import healthd.trainer.guard", "import healthd.launcher.gate"):
        samples = []
        for _ in range(15):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            samples.append((time.perf_counter() - began) * 1e3)
        print_cost_row(f"python -c '{statement}'", statistics.median(samples), max(samples), "ms (max)")


def one_order(place: Path) -> tuple[float, float, float]:
    """Milliseconds from posting an order to: all ranks agreed, all saved, all processes gone."""
    beacons = place / "beacons"
    prepare_directory(str(beacons))
    argv = [sys.executable, "-m", "healthctl.main", "launch", "--backend=local", "--gate=off", "--max-restarts=0"]
    argv += [f"--ranks-per-node={RANKS}", "--node-names=n0", "--", *COMMAND, "--steps=100000"]
    argv += [f"--checkpoints={place / 'checkpoints'}", "--every=100000", f"--step-seconds={PACE_SECONDS}"]
    environ = {**os.environ, "HEALTHD_BEACON_DIR": str(beacons), "HEALTHD_JOB": "bench"}
    with subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as launcher:
        try:
            views = wait_for_beacons(
                lambda: [v for v in read_all_pages(str(beacons))[0] if v.state.completed > 5], RANKS
            )
            began = time.time()
            for view in views:
                post_order(view.path, MailboxOrder("o1", "checkpoint_then_eject", "bench", (), began + 600))
            wait_for_beacons(lambda: [v for v in read_all_pages(str(beacons))[0] if not v.alive], RANKS)
            gone = time.time()
        finally:
            launcher.terminate()
    answers = [view.acknowledgement for view in read_all_pages(str(beacons))[0]]
    agreed = max(answer.agreed_at for answer in answers if answer)
    saved = max(answer.saved_at for answer in answers if answer)
    return (agreed - began) * 1e3, (saved - began) * 1e3, (gone - began) * 1e3


def wait_for_beacons(look: Callable[[], list[BeaconView]], count: int) -> list[BeaconView]:
    end = time.monotonic() + DEADLINE_SECONDS
    while len(found := look()) < count:
        assert time.monotonic() < end, "the ranks did not get there"
        time.sleep(0.001)
    return found


def ways_out() -> None:
    runs = []
    for _ in range(ORDER_RUNS):
        with tempfile.TemporaryDirectory() as place:
            runs.append(one_order(Path(place)))
    print(f"\nfrom order to ..., {RANKS} ranks, steps of {PACE_SECONDS * 1e3:g} ms, over {ORDER_RUNS} runs")
    for name, values in zip(
        ("agreed by all", "saved by all", "every process gone"), zip(*runs, strict=True), strict=True
    ):
        print_cost_row(f"  {name}", statistics.median(values), max(values), "ms (max)")


def main() -> None:
    print(f"{'':<62}{'p50':>12}{'p99':>12}")
    shared_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=shared_memory) as directory:
        host_time(directory)
        for what, call, calls in nvrx.iterate_nvrx_calls(directory):
            print_cost_row(what, *time_calls(call, calls), "ns")
    import_time()
    if "--host-only" not in sys.argv:
        ways_out()


if __name__ == "__main__":
    main()
