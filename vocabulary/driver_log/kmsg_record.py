"""Records of the kernel's log device, /dev/kmsg: one record per read. Pure.

healthd's collector and preflight's counter readings call it.
"""

from __future__ import annotations

import re

import msgspec

RECORD_BYTES_MAX = 8192  # the kernel's own limit for one record
_HEADER = re.compile(rb"(?P<prio>\d{1,10}),(?P<seq>\d{1,20}),(?P<usec>\d{1,20}),(?P<flags>[^,;]{0,16})(?:,[^;]*)?;")
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")


class KmsgRecord(msgspec.Struct, frozen=True):
    """One record. `usec` counts from boot; `fields` are the KEY=value lines behind the text."""

    facility: int
    level: int
    seq: int
    usec: int
    flags: str
    text: str
    fields: dict[str, str] = {}


class KmsgError(ValueError):
    """Bytes that are no kmsg record."""


def parse_record(data: bytes) -> KmsgRecord:
    r"""Parse one record. Pure.

        prio,seq,usec,flags[,key=value…];text
         KEY=value

    `prio` holds facility (upper bits) and level (lower three); flags are ``-`` (whole), ``c`` (written with KERN_CONT:
    the NVIDIA driver's records carry it, and are whole all the same) or ``+`` (rest of a line, old kernels). Bytes the
    kernel dislikes come as ``\xNN``.

    Raises:
        KmsgError: it does not begin like a record.
    """
    header = _HEADER.match(data)
    if header is None:
        raise KmsgError(f"not a kernel record (expected 'prio,seq,usec,flags;text'): {data[:80]!r}")
    text, *rest = data[header.end() :].split(b"\n")
    fields = {}
    for line in rest:
        key, equals, value = line[1:].partition(b"=")
        if line.startswith(b" ") and equals:
            fields[_decode_text(key)] = _decode_text(value)
    prio = int(header["prio"])
    return KmsgRecord(
        facility=prio >> 3,
        level=prio & 7,
        seq=int(header["seq"]),
        usec=int(header["usec"]),
        flags=header["flags"].decode("ascii", "replace"),
        text=_decode_text(text),
        fields=fields,
    )


def _decode_text(data: bytes) -> str:
    if b"\\" in data:
        data = _ESCAPE.sub(lambda match: bytes((int(match[1], 16),)), data)
    return data.decode(errors="replace")
