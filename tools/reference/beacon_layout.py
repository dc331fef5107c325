"""The byte layout of a beacon page, from the structs that pack it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from healthd.trainer.beacons import beacon_page as beacon
from healthd.trainer.beacons import step_ring
from tools.reference.markdown import join_lines, render_code, render_head, render_table

ABOUT = (
    (
        "Little-endian, no padding. Byte offsets are relative to the block. Meaning of the fields, writers, and rules for readers: "
        "[the beacon page](beacon.md)."
    ),
)
_TYPES = {"s": "char[{}]", "I": "u32", "Q": "u64", "q": "i64", "d": "f64", "f": "f32"}
_HEADER = ("magic", "version", "page bytes", "ring entries", "bytes per ring entry")
_STATE = ("sequence", "step", "since, UTC s", "at, UTC s", "completed steps", "phase", "section", "sequence again")
_FRAME = ("sequence", "bytes of JSON", "CRC-32 of sequence, length and JSON")
_ENTRY = (
    *("ordinal of the step", "step", "started at, UTC s", "seconds", "flags"),
    *(f"seconds in {name}" for name in step_ring.SECTION_NAMES),
    *("loss", "gradient norm", "tokens", "zero", "CRC-32 of all bytes before"),
)
_FLAGS = (("LOSS", step_ring.LOSS), ("GRAD_NORM", step_ring.GRAD_NORM), ("TOKENS", step_ring.TOKENS))
_MORE_FLAGS = (("ON_DEVICE", step_ring.ON_DEVICE), ("AWAITED", step_ring.AWAITED))


def render_beacon_layout_page() -> str:
    """docs/reference/beacon-layout.md."""
    lines = render_head(
        "Layout of the beacon page", *ABOUT, f"Version {beacon.VERSION}; {beacon.PAGE_BYTES} bytes per page."
    )
    blocks = (
        ("header", beacon.HEADER_AT, beacon.IDENTITY_AT - beacon.HEADER_AT),
        ("identity, framed JSON", beacon.IDENTITY_AT, beacon.IDENTITY_BYTES),
        ("state", beacon.STATE_AT, beacon.STATE_BYTES),
        ("digests, framed JSON", beacon.DIGESTS_AT, beacon.DIGESTS_BYTES),
        ("acknowledgement, framed JSON", beacon.ACKNOWLEDGEMENT_AT, beacon.ACKNOWLEDGEMENT_BYTES),
        ("mailbox, framed JSON", beacon.MAILBOX_AT, beacon.MAILBOX_BYTES),
        (f"ring of {step_ring.ENTRIES} entries", beacon.RING_AT, step_ring.ENTRIES * step_ring.ENTRY_BYTES),
    )
    lines += [
        "## Blocks",
        "",
        *render_table(["block", "offset", "bytes"], [[n, str(at), str(size)] for n, at, size in blocks]),
    ]
    lines += _block("Header", beacon.pack_header(), "<8sIIIII", (*_HEADER, "CRC-32 of all bytes before"))
    lines += _block("Frame of a JSON block", None, beacon.FRAME_HEAD.format, _FRAME)
    lines += _block("State", None, f"{beacon.STATE.format}I", (*_STATE, "CRC-32 of all bytes before"))
    lines += _block("Ring entry", None, step_ring.ENTRY.format, _ENTRY)
    lines += ["## Values", ""]
    for title, rows in _numbers():
        lines += [f"**{title}**: {', '.join(f'{number} {render_code(name)}' for name, number in rows)}.", ""]
    for title, kind in (
        ("Identity", beacon.Identity),
        ("Mailbox", beacon.MailboxOrder),
        ("Digests", beacon.SampledDigests),
        ("Acknowledgement", beacon.Acknowledgement),
    ):
        lines += [f"**{title}** (JSON members): {', '.join(map(render_code, kind._fields))}.", ""]
    return join_lines(lines)


def _numbers() -> Iterator[tuple[str, list[tuple[str, int]]]]:
    yield "Phases", [(phase.name.lower(), int(phase)) for phase in beacon.Phase]
    yield "Sections", [(section.name.lower(), int(section)) for section in step_ring.StepSection]
    timed = [(f"{name} was timed", at) for at, name in enumerate(step_ring.SECTION_NAMES)]
    flags = [(name.lower(), flag.bit_length() - 1) for name, flag in (*_FLAGS, *_MORE_FLAGS)]
    yield "Flags of a ring entry, by bit", [*timed, *flags]


def _block(title: str, example: bytes | None, layout: str, names: Sequence[str]) -> list[str]:
    """A packed block: offset, type and name of each field. An example, if given, is checked against the layout."""
    assert example is None or struct.calcsize(layout) == len(example)  # noqa: S101 - a bug in this tool
    fields = list(_fields(layout))
    rows = [[str(at), kind, name] for (at, kind), name in zip(fields, names, strict=True)]
    return [
        f"## {title}",
        "",
        f"{struct.calcsize(layout)} bytes.",
        "",
        *render_table(["offset", "type", "field"], rows),
    ]


def _fields(layout: str) -> Iterator[tuple[int, str]]:
    """Offset and type of each field of a struct format."""
    at, count = 0, ""
    for letter in layout.lstrip("<"):
        if letter.isdigit():
            count += letter
            continue
        if letter == "s":
            yield at, _TYPES[letter].format(count)
            at += int(count)
        else:
            for _ in range(int(count or 1)):
                yield at, _TYPES[letter]
                at += struct.calcsize(f"<{letter}")
        count = ""
