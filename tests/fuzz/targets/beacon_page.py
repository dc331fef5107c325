"""The page of a trainer of any user, with checksums that fit: whoever writes a page can make them."""

from __future__ import annotations

import json
from zlib import crc32

from healthd.trainer.beacons import beacon_page, step_ring
from healthd.trainer.beacons.beacon_page import FieldError, unpack_frame, unpack_state
from tests.fuzz.target import Target

_READERS = {
    0: ("identity", beacon_page.identity_from),
    1: ("mailbox", beacon_page.order_from),
    2: ("acknowledgement", beacon_page.acknowledgement_from),
}


def judge(data: bytes) -> None:
    """Each block is read or refused with the field's name; what is read can be sent on as JSON."""
    which, content = data[:1], data[1:]
    try:
        if not which or which[0] % 6 < 3:
            _frame(which[0] % 6 if which else 0, content)
        elif which[0] % 6 == 3:
            body = content[: beacon_page.STATE.size].ljust(beacon_page.STATE.size, b"\0")
            unpack_state(beacon_page.pack_checked(body[:-8] + body[:8]))
        elif which[0] % 6 == 4:
            _steps(content)
        else:
            beacon_page.check_header(content)
            unpack_frame("identity", content.ljust(beacon_page.FRAME_HEAD.size, b"\0"))
    except FieldError:
        return


def _frame(which: int, content: bytes) -> None:
    head = beacon_page.FRAME_HEAD.pack(1, len(content), 0)[:12]
    block = head + beacon_page.CRC.pack(crc32(content, crc32(head))) + content
    field, read = _READERS[which]
    _, document = unpack_frame(field, block)
    if document is not None:
        json.dumps(read(document), allow_nan=False).encode()


def _steps(content: bytes) -> None:
    body = content[: step_ring.BODY.size].ljust(step_ring.BODY.size, b"\0")
    entry = (body + beacon_page.CRC.pack(crc32(body))).ljust(step_ring.ENTRY_BYTES, b"\0")
    for record in step_ring.unpack_entries(entry, 1, 1):
        json.dumps([record.step, record.started_at, record.seconds, record.sections], allow_nan=False)


_IDENTITY = (
    b'{"job":"j","attempt":1,"rank":0,"world":8,"local_rank":0,"node":"n1","pid":7,"process_start":9,"created_at":1.5,'
    b'"role":"","pipeline_stage":-1,"tensor_group":-1,"data_group":-1,"expert_group":-1,"gpu_uuid":"","gpu_pci":"","gpu_index":0}'
)
TARGET = Target(
    judge,
    (
        b"\0" + _IDENTITY,
        b'\1{"id":"o","kind":"abort","reason":"r","condemned":["n1"],"expires_at":1.0,"cancelled":false,"injected":false}',
        (
            b'\2{"order":"o","outcome":"saved","seen_at":1.0,"agreed_step":3,"agreed_at":0,"saved_at":0,"checkpoint":"",'
            b'"left_at":0,"detail":"","exit_code":90}'
        ),
        b"\3" + bytes(52),
        b"\4" + bytes(64),
        b"\5" + beacon_page.pack_header(),
        b"\0" + b"[" * 1500,
    ),
    bytes_max=1600,
)
