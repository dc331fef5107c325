"""The ring's entries: what goes in comes out, and nothing else ever does."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.beacons import step_ring
from healthd.trainer.beacons.step_ring import (
    AWAITED,
    GRAD_NORM,
    LOSS,
    ON_DEVICE,
    SECTION_NAMES,
    TOKENS,
    EntryMeasurements,
    StepRecord,
    StepSection,
)

steps = st.integers(-(2**63), 2**63 - 1)
times = st.floats(0, 4e9)
numbers = st.floats()
seconds = st.floats(0, 1e6, width=32)
told = st.builds(
    EntryMeasurements,
    st.integers(0, 0x7F).flatmap(
        lambda sections: st.sets(st.sampled_from([LOSS, GRAD_NORM, TOKENS, ON_DEVICE, AWAITED])).map(
            lambda flags: sum(flags) | sections
        )
    ),
    st.lists(seconds, min_size=8, max_size=8),
    numbers,
    numbers,
    st.integers(0, 2**63 - 1),
)


def same(one: float | None, other: float | None) -> bool:
    return one == other or (one is not None and other is not None and math.isnan(one) and math.isnan(other))


@given(steps, times, times, told)
def test_an_entry_comes_out_as_it_went_in(
    step: int, started_at: float, took: float, measured: EntryMeasurements
) -> None:
    entry = step_ring.pack_entry(0, step, started_at, took, measured)
    assert len(entry) == step_ring.ENTRY_BYTES

    (found,) = step_ring.unpack_entries(entry, 1, 1)

    assert found[:3] == (step, started_at, took)
    names = {name: measured.seconds[StepSection[name.upper()]] for name in SECTION_NAMES}
    bits = {name for at, name in enumerate(SECTION_NAMES) if measured.flags >> at & 1}
    assert found.sections == {name: value for name, value in names.items() if name in bits}
    assert same(found.loss, measured.loss if measured.flags & LOSS else None)
    assert same(found.grad_norm, measured.grad_norm if measured.flags & GRAD_NORM else None)
    assert found.tokens == (measured.tokens if measured.flags & TOKENS else None)
    assert (found.on_device, found.awaited) == (bool(measured.flags & ON_DEVICE), bool(measured.flags & AWAITED))


@given(st.integers(0, step_ring.ENTRY_BYTES - 1), st.integers(1, 255))
def test_an_entry_with_any_byte_changed_is_left_out(at: int, bits: int) -> None:
    entry = bytearray(step_ring.pack_entry(0, 7, 1.0, 2.0, EntryMeasurements(LOSS | 1, loss=3.0)))
    entry[at] ^= bits

    assert step_ring.unpack_entries(bytes(entry), 1, 1) == []


@given(st.integers(1, step_ring.ENTRY_BYTES - 1))
def test_an_entry_mixed_from_two_writes_is_left_out(cut: int) -> None:
    """A step's own two writes, and those of two steps that share a place."""
    awaited = step_ring.pack_entry(0, 7, 1.0, 2.0, EntryMeasurements(AWAITED))
    complete = step_ring.pack_entry(
        0, 7, 1.0, 2.0, EntryMeasurements(ON_DEVICE | LOSS | 0b10, (0.0, 0.0, 0.5, *[0.0] * 5), loss=3.0)
    )
    later = step_ring.pack_entry(1024, 1031, 5.0, 2.5, EntryMeasurements())
    for old, new in ((awaited, complete), (complete, later)):
        mixed = new[:cut] + old[cut:]
        if mixed not in (old, new):
            assert step_ring.unpack_entries(mixed, 1, 1) == []
            assert step_ring.unpack_entries(mixed.ljust(step_ring.ENTRIES * step_ring.ENTRY_BYTES), 1025, 1) == []


@given(st.binary(max_size=4 * step_ring.ENTRY_BYTES), st.integers(0, 2**64 - 1), st.integers(0, 2000))
def test_rubbish_is_no_step(content: bytes, completed: int, last: int) -> None:
    assert step_ring.unpack_entries(content, completed, last) == []


@given(st.data())
def test_what_no_report_could_carry_is_left_out(data: st.DataObject) -> None:
    any_number, any_single = st.floats(), st.floats(width=32)
    measured = EntryMeasurements(
        data.draw(st.integers(0, 2**32 - 1)),
        data.draw(st.lists(any_single, min_size=8, max_size=8)),
        data.draw(any_number),
        data.draw(any_number),
        data.draw(st.integers(0, 2**64 - 1)),
    )
    entry = step_ring.pack_entry(0, 1, data.draw(any_number), data.draw(any_number), measured)

    for found in step_ring.unpack_entries(entry, 1, 1):
        took = [found.started_at, found.seconds, *found.sections.values(), sum(found.sections.values())]
        assert all(math.isfinite(value) and abs(value) < 2.0**63 for value in took)
        assert found.seconds >= 0
        assert found.tokens is None or 0 <= found.tokens < 2**63
        assert all(map(math.isfinite, step_ring.summarize_durations([found] * 64).sections_median.values()))


def test_the_ring_turns() -> None:
    content = b"".join(
        step_ring.pack_entry(n, n, 1.0, 2.0, EntryMeasurements())
        for n in [*range(1024, 1030), *range(6, step_ring.ENTRIES)]
    )

    assert step_ring.unpack_entries(content, 1031, 1) == [], "the entry there is of 1024 steps before"
    assert [step.step for step in step_ring.unpack_entries(content, 1030, step_ring.ENTRIES)] == list(range(6, 1030))
    assert [step.step for step in step_ring.unpack_entries(content, 1030, 2)] == [1028, 1029]


def test_the_document_and_the_code_lay_an_entry_out_alike() -> None:
    numbers = (0.5, 0.25, 0.125, 1.0, 2.0, 4.0, 8.0)
    entry = step_ring.pack_entry(3, -1, 10.0, 11.0, EntryMeasurements(0x3077F, (0.0, *numbers), 12.0, 13.0, 14))

    assert struct.unpack_from("<Qqdd", entry) == (3, -1, 10.0, 11.0)
    assert struct.unpack_from("<I", entry, 32) == (0x3077F,)
    assert struct.unpack_from("<7f", entry, 36) == numbers
    assert struct.unpack_from("<ddQI", entry, 64) == (12.0, 13.0, 14, 0)
    names = ["data", "forward", "backward", "communication", "optimizer", "checkpoint", "other"]
    assert [name.lower() for name in StepSection.__members__] == ["none", *names]
    assert list(SECTION_NAMES) == names


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, -math.inf, 1e300])
def test_a_clock_that_goes_astray_still_fits(value: float) -> None:
    fitting = step_ring.seconds_that_fit(value)

    (step,) = step_ring.unpack_entries(
        step_ring.pack_entry(0, 0, 1.0, 1.0, EntryMeasurements(1, (0.0, fitting, *[0.0] * 6))), 1, 1
    )
    assert 0 <= step.sections["data"] <= 1e9


def test_durations_are_medians_over_the_steps_that_tell() -> None:
    steps = [
        StepRecord(0, 1.0, 1.0, {"forward": 0.5}),
        StepRecord(1, 2.0, 3.0, {"forward": 0.7, "data": 0.1}),
        StepRecord(2, 5.0, 2.0),
    ]

    found = step_ring.summarize_durations(steps)

    assert found == (2.0, {"forward": 0.7, "data": 0.1}, {"forward": 0.6, "data": 0.1})
    assert step_ring.summarize_durations([]) == (0.0, {}, {})
