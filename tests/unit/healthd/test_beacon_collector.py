"""What the daemon reports of its ranks, also where a user wrote into his page whatever he liked."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from healthd.collectors.beacons import SUMMARY_S, BeaconCollector
from healthd.trainer.beacons import beacon_page, step_ring
from healthd.trainer.beacons.beacon import Beacon
from healthd.trainer.beacons.beacon_page import SampledDigests
from healthd.trainer.beacons.rank_placement import RankGpu, RankGroups, RankPlacement
from healthd.trainer.beacons.step_ring import EntryMeasurements, StepSection
from vocabulary.clock import ManualClock
from vocabulary.messages.wire import ProductDigests, RankStatus, StepWindow, decode_message, encode_message

PLACE = RankPlacement("job", 3, 5, 16, 5, "n1", RankGroups("actor", 2, 1, 4, 7), RankGpu("GPU-5"))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def beacon(tmp_path: Path, clock: ManualClock) -> Iterator[Beacon]:
    tmp_path.chmod(0o700)
    made = Beacon.create(str(tmp_path), PLACE, clock)
    yield made
    made.close()


def one_step(beacon: Beacon, clock: ManualClock, step: int, forward: float) -> None:
    beacon.begin_step(step)
    clock.advance(1.0)
    beacon.end_measured_step(EntryMeasurements(0b10, (0.0, 0.0, forward, *[0.0] * 5)))


def test_a_rank_tells_its_step_time_by_section_and_who_its_peers_are(
    beacon: Beacon, tmp_path: Path, clock: ManualClock
) -> None:
    for step in range(100):
        one_step(beacon, clock, step, 0.25 if step < 40 else 0.5)
    one_step(beacon, clock, 100, 0.75)
    beacon.begin_step(101)
    beacon.section(StepSection.COMMUNICATION)
    beacon.publish_digests(SampledDigests("P", ("0" * 16, ""), 0, 1, 99))

    (rank,) = BeaconCollector(tmp_path).read(clock.wall()).ranks
    assert rank.windows[-1] == StepWindow(96, 4, 4, step_s=1.0, forward_s=0.5)
    assert [window.first for window in rank.windows] == [*range(68, 97, 4)]  # the newest eight, and no half one

    assert replace(rank, windows=()) == RankStatus(
        job="job",
        attempt=3,
        rank=5,
        world=16,
        pid=os.getpid(),
        step=101,
        phase="step",
        at=clock.wall(),
        step_seconds=1.0,
        section="communication",
        step_median=1.0,
        sections={"forward": 0.75},
        sections_median={"forward": 0.5},
        role="actor",
        pipeline_stage=2,
        tensor_group=1,
        data_group=4,
        expert_group=7,
        gpu="GPU-5",
        digests=ProductDigests("P", ("0" * 16, ""), 0, 1, 99),
    )
    assert decode_message(encode_message(rank), RankStatus) == rank


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"digests": ["xyz"]}, "digests: must be at most 8 texts"),
        ({"digests": [""] * 9}, "digests: must be at most 8 texts"),
        ({"digests": [5]}, "digests: must be at most 8 texts"),
        ({"platform": "x" * 256}, "platform"),
        ({"contradictions": -1}, "counts must not be negative"),
        ({"transients": True}, "transients: has the wrong type"),
        ({"last_good_step": 2**70}, "last_good_step: is a number that a report cannot carry"),
        ({"platform": None}, "platform: missing"),
    ],
)
def test_digests_that_cannot_be_are_a_damaged_page_and_hide_no_rank(
    document: dict[str, object], problem: str, beacon: Beacon, tmp_path: Path, clock: ManualClock
) -> None:
    whole = SampledDigests("P", ("0" * 16,))._asdict() | document
    frame = beacon_page.pack_frame("digests", 1, whole, beacon_page.DIGESTS_BYTES)
    with Path(beacon.path).open("r+b") as file:
        file.seek(beacon_page.DIGESTS_AT)
        file.write(frame)
    sample = BeaconCollector(tmp_path).read(clock.wall())
    assert sample.ranks[0].digests is None
    assert problem in next(iter(sample.broken.values()))


def test_a_summary_is_made_anew_only_now_and_then(beacon: Beacon, tmp_path: Path, clock: ManualClock) -> None:
    collector = BeaconCollector(tmp_path)
    now = clock.wall()
    one_step(beacon, clock, 0, 0.25)
    assert collector.read(now).ranks[0].sections == {"forward": 0.25}
    one_step(beacon, clock, 1, 0.5)

    assert collector.read(now + SUMMARY_S - 1).ranks[0].sections == {"forward": 0.25}
    assert collector.read(now + SUMMARY_S).ranks[0].sections == {"forward": 0.5}
    one_step(beacon, clock, 2, 0.75)
    assert collector.read(now - 3600).ranks[0].sections == {"forward": 0.75}, "the clock was set back"


def test_a_loop_that_tells_nothing_costs_a_report_nothing(beacon: Beacon, tmp_path: Path, clock: ManualClock) -> None:
    beacon.begin_step(0)
    beacon.end_step()

    (rank,) = BeaconCollector(tmp_path).read(clock.wall()).ranks

    assert b"section" not in encode_message(rank)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
u64, i64, u32 = st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32 - 1)
small = st.integers(0, 9)
numbers = st.floats() | st.just(math.inf)


def framed(text: bytes) -> bytes:
    checksum = crc32(text, crc32(b"\1\0\0\0\0\0\0\0" + len(text).to_bytes(4, "little")))
    return beacon_page.FRAME_HEAD.pack(1, len(text), checksum) + text


def document(field: str) -> st.SearchStrategy[bytes]:
    """A framed object, whole by its checksum, with a member or two of somebody's own making."""
    good = {
        "identity": beacon_page.Identity("j", 1, 0, 2, 0, "n1", 99, 5, 1.5)._asdict(),
        "acknowledgement": beacon_page.Acknowledgement("o1", beacon_page.OrderOutcome.SEEN, 1.0)._asdict(),
        "mailbox": beacon_page.MailboxOrder("o1", "abort", "", (), 1.0)._asdict(),
    }[field]
    changes = st.dictionaries(st.sampled_from(sorted(good)), json_values, max_size=2)
    return changes.map(lambda change: framed(dumped({**good, **change})))


def dumped(value: object) -> bytes:
    import json  # noqa: PLC0415 - Python's own writes what msgspec would not: NaN, halves of surrogates

    return json.dumps(value).encode()


rubbish = st.binary(max_size=200) | st.integers(1, 4000).map(lambda depth: framed(b"[" * depth))
blocks = st.one_of(
    st.tuples(st.just(beacon_page.IDENTITY_AT), document("identity") | rubbish),
    st.tuples(st.just(beacon_page.ACKNOWLEDGEMENT_AT), document("acknowledgement") | rubbish),
    st.tuples(st.just(beacon_page.MAILBOX_AT), document("mailbox") | rubbish),
    st.tuples(
        st.just(beacon_page.STATE_AT),
        st.builds(beacon_page.STATE.pack, st.just(1), i64, numbers, numbers, u64 | small, small, small, st.just(1)).map(
            beacon_page.pack_checked
        )
        | rubbish,
    ),
    st.tuples(
        st.just(beacon_page.RING_AT),
        st.builds(
            step_ring.pack_entry,
            small,
            i64,
            numbers,
            numbers,
            st.builds(
                EntryMeasurements,
                u32,
                st.lists(st.floats(width=32), min_size=8, max_size=8),
                numbers,
                numbers,
                u64 | small,
            ),
        )
        | rubbish,
    ),
    st.tuples(st.integers(0, beacon_page.PAGE_BYTES - 200), st.binary(max_size=200)),
)


@given(st.lists(blocks, min_size=1, max_size=3))
@example([(beacon_page.STATE_AT, beacon_page.pack_checked(beacon_page.STATE.pack(1, -(2**63), 0.0, 0.0, 0, 0, 0, 1)))])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_a_user_writes_his_node_goes_on_reporting(
    beacon: Beacon, tmp_path: Path, clock: ManualClock, written: list[tuple[int, bytes]]
) -> None:
    one_step(beacon, clock, 0, 0.25)
    content = bytearray(Path(beacon.path).read_bytes())
    for at, block in written:
        content[at : at + len(block)] = block
    directory = tmp_path / "pages"
    directory.mkdir(exist_ok=True)
    forged = directory / "forged.beacon"
    forged.write_bytes(content[: beacon_page.PAGE_BYTES])
    forged.chmod(0o600)

    sample = BeaconCollector(directory).read(clock.wall())

    assert len(sample.broken) <= 1
    assert all(str(forged) in problem for problem in sample.broken.values())
    for rank in sample.ranks:
        assert decode_message(encode_message(rank), RankStatus) == rank
    msgspec.json.encode(sample.broken)
