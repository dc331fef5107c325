from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.beacons import beacon_page, step_ring
from healthd.trainer.beacons.beacon_page import Acknowledgement, FieldError, Identity, MailboxOrder, OrderOutcome, Phase

texts = st.text(max_size=40)
seconds = st.floats(0, 4e9)


def test_blocks_lie_apart_and_the_page_ends_with_the_ring() -> None:
    blocks = [
        (beacon_page.HEADER_AT, 28),
        (beacon_page.IDENTITY_AT, beacon_page.IDENTITY_BYTES),
        (beacon_page.STATE_AT, beacon_page.STATE_BYTES),
        (beacon_page.ACKNOWLEDGEMENT_AT, beacon_page.ACKNOWLEDGEMENT_BYTES),
        (beacon_page.MAILBOX_AT, beacon_page.MAILBOX_BYTES),
        (beacon_page.RING_AT, step_ring.ENTRIES * step_ring.ENTRY_BYTES),
    ]
    assert all(at + size <= following for (at, size), (following, _) in itertools.pairwise(blocks))
    assert beacon_page.PAGE_BYTES == 131072 == sum(blocks[-1])
    assert len(beacon_page.pack_checked(bytes(step_ring.BODY.size))) == step_ring.ENTRY_BYTES


orders = st.builds(
    MailboxOrder,
    *(texts, texts, texts, st.lists(texts).map(tuple), seconds, st.booleans(), st.booleans(), st.integers(-1, 2**40)),
)


@given(orders, st.integers(1, 2**63))
def test_an_order_survives_its_frame(order: MailboxOrder, sequence: int) -> None:
    frame = beacon_page.pack_frame("mailbox", sequence, order._asdict(), beacon_page.MAILBOX_BYTES)

    read, document = beacon_page.unpack_frame("mailbox", frame.ljust(beacon_page.MAILBOX_BYTES, b"\0"))

    assert read == sequence
    assert document is not None
    assert beacon_page.order_from(document) == order


answers = st.builds(
    Acknowledgement,
    *(texts, st.sampled_from(OrderOutcome), seconds, st.integers(-1, 2**40)),
    *(seconds, seconds, texts, seconds, texts, st.integers(-1, 255)),
)


@given(answers)
def test_an_acknowledgement_survives_its_frame(answer: Acknowledgement) -> None:
    frame = beacon_page.pack_frame("acknowledgement", 1, answer._asdict(), beacon_page.ACKNOWLEDGEMENT_BYTES)

    _, document = beacon_page.unpack_frame("acknowledgement", frame)

    assert document is not None
    assert beacon_page.acknowledgement_from(document) == answer


@given(st.data())
def test_a_frame_with_any_byte_changed_is_refused(data: st.DataObject) -> None:
    frame = bytearray(beacon_page.pack_frame("mailbox", 7, {"id": "o1", "reason": "x" * 20}, beacon_page.MAILBOX_BYTES))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))

    with pytest.raises(FieldError, match="mailbox"):
        beacon_page.unpack_frame("mailbox", bytes(frame).ljust(beacon_page.MAILBOX_BYTES, b"\0"))


@given(st.integers(0, 59), st.integers(1, 255))
def test_a_state_with_any_byte_changed_is_refused(at: int, bits: int) -> None:
    block = bytearray(beacon_page.pack_checked(beacon_page.STATE.pack(3, 42, 1.0, 2.0, 42, 1, 0, 3)))
    block[at] ^= bits

    with pytest.raises(FieldError, match="state"):
        beacon_page.unpack_state(bytes(block))


@given(st.integers(1, 60))
def test_a_state_mixed_from_two_writes_is_refused(cut: int) -> None:
    old = beacon_page.pack_checked(beacon_page.STATE.pack(3, 42, 1.0, 2.0, 42, 1, 0, 3))
    new = beacon_page.pack_checked(beacon_page.STATE.pack(4, 43, 5.0, 6.0, 43, 2, 0, 4))
    mixed = new[:cut] + old[cut:]
    if mixed in (old, new):
        return
    with pytest.raises(FieldError, match="state"):
        beacon_page.unpack_state(mixed)


@pytest.mark.parametrize("moment", [float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(moment: float) -> None:
    for since, at in ((moment, 1.0), (1.0, moment)):
        with pytest.raises(FieldError, match="holds an invalid time"):
            beacon_page.unpack_state(beacon_page.pack_checked(beacon_page.STATE.pack(3, 42, since, at, 42, 1, 0, 3)))


def test_phases_keep_their_numbers() -> None:
    assert [(phase.value, phase.name) for phase in Phase] == [
        (0, "STARTING"),
        (1, "STEP"),
        (2, "BETWEEN"),
        (3, "AGREEING"),
        (4, "LEAVING"),
        (5, "ABORTING"),
        (6, "DONE"),
    ]


def test_the_header_says_what_is_wrong() -> None:
    header = beacon_page.pack_header()
    beacon_page.check_header(header)

    with pytest.raises(FieldError, match="magic: not a beacon page"):
        beacon_page.check_header(b"ELF" + header[3:])
    with pytest.raises(FieldError, match="version: is 1, this program reads version 2"):
        beacon_page.check_header(header[:8] + struct.pack("<I", 1) + header[12:])
    with pytest.raises(FieldError, match="header"):
        beacon_page.check_header(header[:-1] + b"\xff")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rank": "0"}, "identity.rank: has the wrong type: '0'"),
        ({"job": None}, "identity.job: missing"),
        ({"pid": True}, "pid"),
        ({"pid": 10**30}, "identity.pid: is a number that a report cannot carry"),
        ({"created_at": float("nan")}, "identity.created_at: is a number"),
        ({"job": "half \ud800"}, "identity.job: is a text that a report cannot carry"),
    ],
)
def test_a_wrong_member_is_named(change: dict[str, object], text: str) -> None:
    identity = Identity("j", 1, 0, 2, 0, "n1", 99, 5, 1.5)

    assert beacon_page.identity_from(identity._asdict()) == identity
    with pytest.raises(FieldError, match=text):
        beacon_page.identity_from({**identity._asdict(), **change})


def test_a_frame_that_does_not_fit_is_refused() -> None:
    with pytest.raises(FieldError, match="mailbox: 110 bytes of JSON, 84 fit"):
        beacon_page.pack_frame("mailbox", 1, {"reason": "x" * 97}, 100)


def test_older_writers_name_no_step_and_no_exit_code() -> None:
    order = MailboxOrder("o", "abort", "r", (), 1.0)
    answer = Acknowledgement("o", OrderOutcome.SEEN, 1.0)
    documents = [
        {name: value for name, value in each._asdict().items() if name not in ("before_step", "exit_code")}
        for each in (order, answer)
    ]

    assert beacon_page.order_from(documents[0] | {"condemned": []}) == order
    assert beacon_page.acknowledgement_from(documents[1]) == answer
