"""What a node may tell of its last hour, whoever speaks in its name; and how both sides say it on the wire."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from vocabulary.health import Health
from vocabulary.messages.telemetry_messages import (
    BLOCKS_MAX,
    BUCKET_S,
    BUCKETS,
    GPU_SERIES,
    HOST,
    HOST_SERIES,
    TELEMETRY_BYTES_MAX,
    TelemetryBlock,
    TelemetryError,
    TelemetryPart,
    TelemetryRequest,
    bucket_of,
    read_part,
)
from vocabulary.messages.wire import OrdersReply, Report, ReportReply, decode_message, decode_orders, encode_message
from vocabulary.order import Order, OrderKind

GPU = "0000:3b:00.0"
NOW = 100_000.0
NEWEST = bucket_of(NOW)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(-1e300, 1e300) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
VALUE = st.none() | st.floats(0, 120) | st.floats(allow_nan=False, allow_infinity=False)
BLOCK = st.fixed_dictionaries(
    {
        "gpu": st.sampled_from([GPU, HOST, "0000:3b:00.0\n", "<b>", "0000:3B:00.0"]),
        "first": st.integers(NEWEST - 2 * BUCKETS, NEWEST + 2) | st.integers(-(2**70), 2**70),
        "columns": st.dictionaries(
            st.sampled_from([*GPU_SERIES, *HOST_SERIES]) | st.text(max_size=5), st.lists(VALUE, max_size=5), max_size=3
        ),
    }
)
NEARLY = st.fixed_dictionaries(  # mostly taken
    {
        "gpu": st.sampled_from([GPU, GPU, HOST]),
        "first": st.integers(NEWEST - BUCKETS + 1, NEWEST - 4),
        "columns": st.dictionaries(
            st.sampled_from([*GPU_SERIES, *HOST_SERIES]), st.lists(VALUE, max_size=5), max_size=9
        ),
    }
)
ALMOST = st.fixed_dictionaries(
    {"monotonic": st.just(NOW), "blocks": st.lists(NEARLY, max_size=2)}
) | st.fixed_dictionaries(
    {
        "monotonic": st.sampled_from([NOW, -1.0, 1e300]) | JSON,
        "blocks": st.lists(BLOCK | JSON, max_size=3) | JSON,
    },
    optional={"bucket_s": st.just(BUCKET_S) | JSON},
)


def block(**more: object) -> TelemetryBlock:
    usual = {"gpu": GPU, "first": NEWEST, "columns": {"temperature": (61.0,)}}
    return TelemetryBlock(**(usual | more))  # type: ignore[arg-type]  # some are wrong on purpose


def told(*blocks: TelemetryBlock, monotonic: float = NOW, bucket_s: float = BUCKET_S) -> bytes:
    return encode_message(TelemetryPart(monotonic, blocks, bucket_s))


@hypothesis_settings(deadline=None)
@given(st.binary(max_size=50) | JSON.map(msgspec.json.encode) | ALMOST.map(msgspec.json.encode))
def test_whatever_is_told_what_is_taken_is_on_the_list_and_within_its_bounds(data: bytes) -> None:
    try:
        part = read_part(data)
    except TelemetryError:
        return
    newest = bucket_of(part.monotonic)
    for each in part.blocks:
        known = HOST_SERIES if each.gpu == HOST else GPU_SERIES
        assert each.gpu in (HOST, GPU)
        for name, values in each.columns.items():
            assert newest - BUCKETS < each.first <= each.first + len(values) - 1 <= newest or not values
            assert all(value is None or known[name].least <= value <= known[name].most for value in values)


def test_an_honest_part_is_taken_as_it_is() -> None:
    part = TelemetryPart(NOW, (block(first=NEWEST - BUCKETS + 1, columns={"power": (None, *[700.0] * 119)}),))
    assert read_part(encode_message(part)) == part


def test_a_newer_peer_may_tell_more_and_a_driver_may_tell_nonsense() -> None:
    columns = {"mood": (1.0,), "temperature": (-999.0,), "power": (1e9,), "utilization": (50.0,)}
    (taken,) = read_part(told(block(columns=columns))).blocks
    assert taken.columns == {"temperature": (None,), "power": (None,), "utilization": (50.0,)}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b" " * (TELEMETRY_BYTES_MAX + 1), "longer"),
        (b"", "cannot be read"),
        (b"null", "cannot be read"),
        (b'{"monotonic":1e999,"blocks":[]}', "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"monotonic":1.0,"blocks":[{"gpu":"\xff","first":0,"columns":{}}]}', "cannot be read"),
        (told(monotonic=-1.0), "clock"),
        (told(monotonic=1e11), "clock"),
        (told(bucket_s=10.0), "another length"),
        (told(*[block(gpu=f"0000:{n:02x}:00.0") for n in range(BLOCKS_MAX + 1)]), "too many"),
        (told(block(), block()), "too many"),
        (told(block(gpu="GPU-1")), "PCI"),
        (told(block(gpu=f"{GPU}\n")), "PCI"),
        (told(block(first=NEWEST + 1)), "outside"),
        (told(block(first=NEWEST - BUCKETS)), "outside"),
        (told(block(columns={"power": (1.0, 2.0)})), "outside"),
        (told(block(columns={"power": (1.0,) * 200}, first=NEWEST - 100)), "outside"),
    ],
)
def test_what_cannot_be_is_refused_in_words_of_our_own(data: bytes, why: str) -> None:
    with pytest.raises(TelemetryError, match=why):
        read_part(data)


def report(part: bytes | None) -> Report:
    return Report(
        version=1, node="n1", boot_id="b", agent="a", seq=1, sent_at=1.0, ttl_s=30.0, health=Health.HEALTHY,
        telemetry=msgspec.UNSET if part is None else msgspec.Raw(part),
    )  # fmt: skip


def test_the_messages_on_the_wire(golden: Callable[[str, str], None]) -> None:
    wish = TelemetryRequest(lasts_s=60.0, back_s=3600.0)
    part = encode_message(TelemetryPart(NOW, (block(columns={"temperature": (None, 61.0), "power": (700.5, None)}),)))
    lines = [
        encode_message(report(part)),
        encode_message(ReportReply(7, 3)),
        encode_message(ReportReply(7, 3, wish)),
        encode_message(OrdersReply(())),
        encode_message(OrdersReply((), wish)),
    ]
    golden("wire/telemetry.jsonl", "".join(f"{line.decode()}\n" for line in lines))


@pytest.mark.parametrize("part", [b'{"monotonic":"\xff"}', b"null", b"17", b'{"a":[[[]]]}'])
def test_a_bad_part_does_not_spoil_the_report(part: bytes) -> None:
    taken = decode_message(encode_message(report(part)), Report)
    assert taken.node == "n1"
    assert taken.telemetry is not msgspec.UNSET
    with pytest.raises(TelemetryError):
        read_part(bytes(taken.telemetry))


def test_peers_of_before_and_of_tomorrow_understand_each_other() -> None:
    class OldReply(msgspec.Struct):
        acked_seq: int
        epoch: int

    class OldReport(msgspec.Struct):
        node: str

    assert decode_message(encode_message(ReportReply(7, 3, TelemetryRequest(60.0))), OldReply) == OldReply(7, 3)
    assert decode_message(encode_message(report(told(block()))), OldReport) == OldReport("n1")
    assert decode_message(b'{"acked_seq":7,"epoch":3}', ReportReply) == ReportReply(7, 3)
    assert decode_orders(b'{"orders":[]}').telemetry is None
    assert decode_orders(encode_message(OrdersReply((), TelemetryRequest(60.0)))).telemetry == TelemetryRequest(60.0)


@pytest.mark.parametrize("wish", [b"17", b'{"lasts_s":"long"}', b'{"lasts_s":1e999}', b'"\xff"'])
def test_a_wish_that_is_not_understood_keeps_no_order_from_being_done(wish: bytes) -> None:
    order = encode_message(
        Order(id="o1", kind=OrderKind.ABORT, node="n1", issued_at=1.0, expires_at=2.0, incident="i", reason="r")
    )
    received = decode_orders(b'{"orders":[' + order + b'],"telemetry":' + wish + b"}")
    assert [each.id for each in received.orders] == ["o1"]
    assert received.telemetry is None
