"""The beacon page: layout, contents and checksums of its blocks. Pure; `docs/reference/beacon.md` describes it.

Four blocks are framed JSON (identity, digests, acknowledgement, mailbox): they change rarely and benefit from names. Two
are packed (state, and the ring of `step_ring`): they change every step and must be cheap. Every block carries its own
CRC-32, because neither Python nor a reader in another process can order memory writes: a reader trusts a checksum,
never a sequence number.
"""

from __future__ import annotations

import enum
import json
import re
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple
from zlib import crc32

from healthd.trainer.beacons import step_ring
from healthd.trainer.beacons.step_ring import NUMBER_MAX, StepSection
from vocabulary.text.surrogate_escapes import escape_surrogates

MAGIC = b"gpu-hlth"
VERSION = 2
DIGESTS_MAX = 8
_DIGEST = re.compile("([0-9a-f]{16})?").fullmatch
NAME_CHARS_MAX = 255  # per text, as in reports (`message_bounds`): a user's page must not silence the node

_HEADER = struct.Struct("<8sIIII")  # magic, version, page bytes, ring entries, ring entry bytes; then its CRC-32
HEADER_AT = 0
IDENTITY_AT, IDENTITY_BYTES = 64, 4032
STATE_AT, STATE_BYTES = 4096, 64
DIGESTS_AT, DIGESTS_BYTES = 4608, 3584
ACKNOWLEDGEMENT_AT, ACKNOWLEDGEMENT_BYTES = 8192, 8192
MAILBOX_AT, MAILBOX_BYTES = 16384, 16384
RING_AT = 32768
PAGE_BYTES = RING_AT + step_ring.ENTRIES * step_ring.ENTRY_BYTES

FRAME_HEAD = struct.Struct("<QII")  # sequence, bytes of JSON, CRC-32 over sequence, length and JSON
_FRAME_CHECKED = struct.Struct("<QI")
STATE = struct.Struct("<QqddQIIQ")  # sequence, step, since, at, completed, phase, section, sequence; then its CRC-32
CRC = struct.Struct("<I")


class Phase(enum.IntEnum):
    """What a rank is doing now."""

    STARTING = 0
    STEP = 1  # inside a training step
    BETWEEN = 2  # after a step, before the next
    AGREEING = 3  # saw an order and waits for its peers to agree on the step
    LEAVING = 4
    ABORTING = 5
    DONE = 6


class BeaconError(Exception):
    """A page that cannot be made, read or written. Names the file and the field.

    Its text can be encoded as UTF-8, whatever the file's name; `path` holds the exact name.
    """

    def __init__(self, path: str, field: str, problem: str) -> None:
        super().__init__(f"beacon {escape_surrogates(path)}: {field}: {problem}")
        self.path = path
        self.field = field
        self.problem = problem


class FieldError(Exception):
    """A block with invalid content; the caller knows the file and makes it a `BeaconError`."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class TornError(FieldError):
    """A block whose checksum does not match: read during a write, or damaged."""

    def __init__(self, field: str) -> None:
        super().__init__(field, "checksum does not match its content (torn or damaged)")


class Identity(NamedTuple):
    """The writer of this page. `process_start` is field 22 of /proc/PID/stat: it distinguishes reused pids.

    Groups, stage and GPU index are -1, and texts empty, where the job did not set them.
    """

    job: str
    attempt: int
    rank: int
    world: int
    local_rank: int
    node: str
    pid: int
    process_start: int
    created_at: float
    role: str = ""
    pipeline_stage: int = -1
    tensor_group: int = -1
    data_group: int = -1
    expert_group: int = -1
    gpu_uuid: str = ""
    gpu_pci: str = ""
    gpu_index: int = -1


class MailboxOrder(NamedTuple):
    """An order as a rank sees it. `cancelled` withdraws the order of that id, unless it is agreed already.

    `before_step` is for revert: checkpoints of this step and later ones are to be set aside; -1 in other orders.
    """

    id: str
    kind: str  # checkpoint_then_eject, checkpoint_then_stop, revert, abort
    reason: str
    condemned: tuple[str, ...]
    expires_at: float
    cancelled: bool = False
    injected: bool = False
    before_step: int = -1


class OrderOutcome(str, enum.Enum):
    """How far a rank got with an order."""

    SEEN = "seen"  # published to the peers, no step agreed yet
    AGREED = "agreed"
    SAVED = "saved"
    LEFT = "left"  # saved, process groups torn down, about to exit
    FAILED = "failed"  # agreed, but saving failed; `detail` says why
    ABORTED = "aborted"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Acknowledgement(NamedTuple):
    """A rank's answer to an order. Times are UTC seconds, 0 if not reached yet.

    `exit_code` is one of `exit_codes`, set just before the rank ends with it, and -1 before. `order` may then be empty: a
    job that must not restart needs no order.
    """

    order: str
    outcome: OrderOutcome
    seen_at: float
    agreed_step: int = -1
    agreed_at: float = 0.0
    saved_at: float = 0.0
    checkpoint: str = ""
    left_at: float = 0.0
    detail: str = ""
    exit_code: int = -1


class SampledDigests(NamedTuple):
    """What a rank's samples of fixed products have shown (`product_sampling`).

    `digests` are by operand pattern, 16 hexadecimal digits each; empty where no product has been computed twice alike.
    `contradictions` counts products that differed from the device's own earlier one and did so again at once;
    `transients` those whose repetition was right again. `last_good_step` is the last step with a right sample before the
    first of either; -1: none.
    """

    platform: str
    digests: tuple[str, ...]
    contradictions: int = 0
    transients: int = 0
    last_good_step: int = -1


class RankState(NamedTuple):
    """A rank's current phase. `since` is when it began, `at` the last write; UTC seconds. Step -1: none yet.

    Inside a `section`, `at` is when that section began.
    """

    step: int
    phase: Phase
    since: float
    at: float
    completed: int
    section: StepSection = StepSection.NONE


def pack_header() -> bytes:
    """Return the first 28 bytes of every page."""
    head = _HEADER.pack(MAGIC, VERSION, PAGE_BYTES, step_ring.ENTRIES, step_ring.ENTRY_BYTES)
    return head + CRC.pack(crc32(head))


def check_header(page: bytes) -> None:
    """Check that the page has this version.

    Raises:
        FieldError: no beacon, another version, or a damaged header.
    """
    head = page[: _HEADER.size]
    if len(page) < _HEADER.size + CRC.size or not head.startswith(MAGIC):
        raise FieldError("magic", f"not a beacon page (expected {MAGIC!r} at byte 0)")
    version = _HEADER.unpack(head)[1]
    if version != VERSION:
        raise FieldError("version", f"is {version}, this program reads version {VERSION}; upgrade the older side")
    if head + page[_HEADER.size : _HEADER.size + CRC.size] != pack_header():
        raise FieldError("header", "checksum does not match its content")


def pack_frame(field: str, sequence: int, document: dict[str, Any], room: int) -> bytes:
    """Return a framed JSON block of at most `room` bytes; a lone surrogate, as in a path, becomes a question mark.

    Raises:
        FieldError: the document is too large for its block.
    """
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    if FRAME_HEAD.size + len(text) > room:
        raise FieldError(field, f"{len(text)} bytes of JSON, {room - FRAME_HEAD.size} fit")
    return FRAME_HEAD.pack(sequence, len(text), crc32(text, crc32(_FRAME_CHECKED.pack(sequence, len(text))))) + text


def unpack_frame(field: str, block: bytes) -> tuple[int, dict[str, Any] | None]:
    """Return sequence and document of a framed block; (0, None) if nothing was ever written.

    Raises:
        FieldError: the block is torn or damaged.
    """
    sequence, length, checksum = FRAME_HEAD.unpack_from(block)
    if sequence == 0 and length == 0 and checksum == 0:
        return 0, None
    text = block[FRAME_HEAD.size : FRAME_HEAD.size + length]
    if len(text) != length or crc32(text, crc32(_FRAME_CHECKED.pack(sequence, length))) != checksum:
        raise TornError(field)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FieldError(field, f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise FieldError(field, "not a JSON object")
    return sequence, document


def pack_checked(body: bytes) -> bytes:
    """Return a packed block and its checksum."""
    return body + CRC.pack(crc32(body))


def unpack_state(block: bytes) -> RankState:
    """Return the state block.

    Raises:
        FieldError: torn or damaged.
    """
    body = block[: STATE.size]
    first, step, since, at, completed, phase, section, last = STATE.unpack(body)
    if first != last or CRC.unpack_from(block, STATE.size)[0] != crc32(body):
        raise TornError("state")
    if not (abs(since) < NUMBER_MAX and abs(at) < NUMBER_MAX and abs(step) < NUMBER_MAX):
        raise FieldError("state", "holds an invalid time or step")
    try:
        return RankState(step, Phase(phase), since, at, completed, StepSection(section))
    except ValueError as error:
        raise FieldError("state", str(error)) from error


def take_member(document: dict[str, Any], field: str, name: str, kind: type | tuple[type, ...]) -> Any:
    """Return a required member of a framed document, of the right type.

    Raises:
        FieldError: it is missing or of another type.
    """
    value = document.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise FieldError(f"{field}.{name}", "missing" if value is None else f"has the wrong type: {value!r}")
    if isinstance(value, str) and not _is_text(value):
        raise FieldError(f"{field}.{name}", "is a text that a report cannot carry")
    if isinstance(value, int | float) and not abs(value) < NUMBER_MAX:  # NaN too
        raise FieldError(f"{field}.{name}", "is a number that a report cannot carry")
    return value


def _is_text(value: str) -> bool:
    """Return whether it can be encoded as UTF-8: JSON may hold a lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


_NUMBER = (int, float)
_GROUPS = ("pipeline_stage", "tensor_group", "data_group", "expert_group")


def require_short(texts: Mapping[str, str]) -> None:
    """Check that the texts of an identity fit into a report.

    Raises:
        FieldError: one is longer than `NAME_CHARS_MAX`; it names the member.
    """
    for name, text in texts.items():
        if len(text) > NAME_CHARS_MAX:
            todo = "; give the job a shorter HEALTHD_JOB" if name == "job" else ""
            raise FieldError(f"identity.{name}", f"has {len(text)} characters, {NAME_CHARS_MAX} are allowed{todo}")


def identity_from(document: dict[str, Any]) -> Identity:
    """Read an identity block.

    Raises:
        FieldError: naming the member that is missing or wrong.
    """
    texts = {name: take_member(document, "identity", name, str) for name in ("job", "node")}
    texts |= {name: take_member(document, "identity", name, str) for name in ("role", "gpu_uuid", "gpu_pci")}
    require_short(texts)
    whole = ("attempt", "rank", "world", "local_rank", "pid", "process_start", *_GROUPS, "gpu_index")
    numbers = {name: take_member(document, "identity", name, int) for name in whole}
    return Identity(**texts, **numbers, created_at=float(take_member(document, "identity", "created_at", _NUMBER)))


def order_from(document: dict[str, Any]) -> MailboxOrder:
    """Read a mailbox block.

    Raises:
        FieldError: naming the member that is missing or wrong.
    """
    texts = {name: take_member(document, "mailbox", name, str) for name in ("id", "kind", "reason")}
    condemned = tuple(take_member(document, "mailbox", "condemned", list))
    if not all(isinstance(node, str) and _is_text(node) for node in condemned):
        raise FieldError("mailbox.condemned", "must be a list of node names")
    flags = {name: take_member(document, "mailbox", name, bool) for name in ("cancelled", "injected")}
    expires_at = float(take_member(document, "mailbox", "expires_at", _NUMBER))
    step = take_member(document, "mailbox", "before_step", int) if "before_step" in document else -1
    return MailboxOrder(**texts, condemned=condemned, expires_at=expires_at, **flags, before_step=step)


def acknowledgement_from(document: dict[str, Any]) -> Acknowledgement:
    """Read an acknowledgement block.

    Raises:
        FieldError: naming the member that is missing or wrong.
    """
    field = "acknowledgement"
    try:
        outcome = OrderOutcome(take_member(document, field, "outcome", str))
    except ValueError as error:
        raise FieldError(f"{field}.outcome", str(error)) from error
    return Acknowledgement(
        order=take_member(document, field, "order", str),
        outcome=outcome,
        seen_at=float(take_member(document, field, "seen_at", _NUMBER)),
        agreed_step=take_member(document, field, "agreed_step", int),
        agreed_at=float(take_member(document, field, "agreed_at", _NUMBER)),
        saved_at=float(take_member(document, field, "saved_at", _NUMBER)),
        checkpoint=take_member(document, field, "checkpoint", str),
        left_at=float(take_member(document, field, "left_at", _NUMBER)),
        detail=take_member(document, field, "detail", str),
        exit_code=take_member(document, field, "exit_code", int) if "exit_code" in document else -1,
    )


def digests_from(document: dict[str, Any]) -> SampledDigests:
    """Read a digests block.

    Raises:
        FieldError: naming the member that is missing or wrong.
    """
    field = "digests"
    digests = tuple(take_member(document, field, "digests", list))
    if len(digests) > DIGESTS_MAX or not all(isinstance(each, str) and _DIGEST(each) for each in digests):
        raise FieldError(f"{field}.digests", f"must be at most {DIGESTS_MAX} texts of 16 hexadecimal digits, or empty")
    platform = take_member(document, field, "platform", str)
    require_short({"platform": platform})
    names = ("contradictions", "transients", "last_good_step")
    contradictions, transients, good = (take_member(document, field, name, int) for name in names)
    if min(contradictions, transients) < 0:
        raise FieldError(field, "counts must not be negative")
    return SampledDigests(platform, digests, contradictions, transients, good)
