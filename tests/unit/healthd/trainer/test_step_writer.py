"""The writer in Python and the one in C: the same operations leave the same bytes, results and errors."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.beacons import beacon_page, step_ring
from healthd.trainer.beacons.step_ring import EntryMeasurements
from healthd.trainer.beacons.step_writer import StepWriter
from tests.unit.healthd.trainer.conftest import import_c_writer
from vocabulary.clock import ManualClock

REPOSITORY = Path(__file__).parents[4]

section = st.integers(1, 7)
number = st.floats(width=64)
fitting = st.floats(width=32)
measured = st.builds(
    EntryMeasurements,
    st.integers(0, 2**18 - 1),
    st.lists(st.one_of(fitting, st.just(1e300)), min_size=8, max_size=8),
    number,
    number,
    st.integers(0, 2**64 - 1),
)
operation = st.one_of(
    st.tuples(st.just("begin_step"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("begin_step"), st.sampled_from([2**63, -(2**63) - 1, 1.5, "1", None, True])),
    st.tuples(st.sampled_from(["enter", "leave"]), section),
    st.tuples(st.sampled_from(["section", "phase"]), st.integers(0, 6)),
    st.tuples(st.sampled_from(["end_step", "reset"])),
    st.tuples(st.just("end_told_step"), number, number, st.integers(0, 2**63)),
    st.tuples(st.just("end_measured_step"), measured),
    st.tuples(st.just("complete"), st.tuples(st.integers(0, 2000), st.integers(0, 9), number, number), measured),
    st.tuples(st.just("advance"), st.floats(0.0, 1e39)),
)


class Recorded:
    """A writer into a page of its own, and what it told."""

    def __init__(self, kind: type[StepWriter], clock: ManualClock) -> None:
        self.page = bytearray(beacon_page.PAGE_BYTES)
        self.writer = kind(self.page, clock)
        self.marks: list[tuple[int, float]] = []
        self.writer.marker = lambda closing, now: self.marks.append((closing, now))

    def call(self, name: str, *args: Any) -> Any:
        try:
            return getattr(self.writer, name)(*args)
        except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
            return type(error)

    def state(self) -> tuple[Any, ...]:
        return bytes(self.page), self.writer.touched, self.writer.current, self.marks


@given(st.lists(operation, max_size=40))
def test_both_writers_leave_the_same_page_after_every_operation(operations: list[tuple[Any, ...]]) -> None:
    clock = ManualClock()
    ours, fast = Recorded(StepWriter, clock), Recorded(import_c_writer(), clock)
    for name, *args in operations:
        if name == "advance":
            clock.advance(args[0])
            continue
        results = ours.call(name, *args), fast.call(name, *args)
        assert repr(results[0]) == repr(results[1])
        if results[0] is None or isinstance(results[0], tuple):
            assert ours.state() == fast.state()
        else:  # a loop's own error: what it left may differ
            return


def test_both_writers_agree_over_more_steps_than_the_ring_holds() -> None:
    clock = ManualClock()
    ours, fast = Recorded(StepWriter, clock), Recorded(import_c_writer(), clock)
    for step in range(step_ring.ENTRIES + 3):
        for each in (ours, fast):
            each.writer.begin_step(step)
            with each.writer.timed_section(1 + step % 7), each.writer.timed_section(1 + step % 3):
                pass
            each.writer.end_told_step(step / 3, 0.5, step)
        clock.advance(0.125)
    for ordinal in range(6):  # the first of them have lost their place to later steps
        for each in (ours, fast):
            each.writer.complete((ordinal, -1, 5.0, 6.0), EntryMeasurements(1, loss=7.0))
    assert ours.state() == fast.state()


def test_sections_nested_deeper_than_any_fixed_room_are_kept(step_writer: type[StepWriter]) -> None:
    clock = ManualClock()
    each = Recorded(step_writer, clock)
    for depth in range(300):
        each.writer.enter(1 + depth % 2)
        clock.advance(1.0)
    each.writer.leave(2)
    assert each.writer.current == 1
    assert len(each.marks) == 301


def test_the_clock_is_the_systems_to_the_last_bit(step_writer: type[StepWriter]) -> None:
    page = bytearray(beacon_page.PAGE_BYTES)
    writer = step_writer(page)
    before = time.time()
    writer.begin_step(1)
    after = time.time()
    at = beacon_page.unpack_state(bytes(page[beacon_page.STATE_AT : beacon_page.STATE_AT + 60])).at
    assert before <= at <= after


def test_a_closed_writer_raises_and_its_page_may_go(step_writer: type[StepWriter]) -> None:
    page = bytearray(beacon_page.PAGE_BYTES)
    writer = step_writer(page)
    writer.close()
    page.clear()  # BufferError while somebody holds it
    with pytest.raises(TypeError):
        writer.begin_step(1)
    with pytest.raises(TypeError):
        writer.complete((0, 1, 2.0, 3.0), EntryMeasurements())


def test_a_clock_or_marker_that_raises_is_the_callers_error(step_writer: type[StepWriter]) -> None:
    each = Recorded(step_writer, ManualClock())

    def broken(closing: int, now: float) -> None:
        raise RuntimeError(closing, now)

    each.writer.marker = broken
    with pytest.raises(RuntimeError):
        each.writer.enter(1)
    each.writer.marker = None
    each.writer.leave(1)
    with pytest.raises(IndexError):
        each.writer.enter(8)


def build_wheel(place: Path, **environ: str) -> zipfile.ZipFile:
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(argv, cwd=REPOSITORY, env={**os.environ, **environ}, check=True, capture_output=True)
    return zipfile.ZipFile(next(place.glob("*.whl")))


def test_a_wheel_built_without_a_compiler_is_pure_python_and_works(tmp_path: Path) -> None:
    with build_wheel(tmp_path, CC="/bin/false") as wheel:
        assert str(wheel.filename).endswith("-py3-none-any.whl")
        wheel.extractall(tmp_path / "installed")
    code = "from healthd.trainer.beacons import beacon; print(beacon.StepWriter.__module__, beacon.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "installed", capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"healthd.trainer.beacons.step_writer {tmp_path}")


def test_a_wheel_built_with_a_compiler_holds_the_extension_and_names_its_platform(tmp_path: Path) -> None:
    import_c_writer()
    with build_wheel(tmp_path) as wheel:
        built = [name for name in wheel.namelist() if name.endswith(".so")]
        assert len(built) == 1
        assert "-none-any" not in str(wheel.filename)
        wheel.extractall(tmp_path / "installed")
    code = "from healthd.trainer.beacons import beacon; print(beacon.StepWriter.__module__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "installed", capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "healthd.trainer.beacons._step_writer"
