"""Messages between a node and the controller, as JSON over HTTP; `WIRE_VERSION` is in every report.

Unknown fields are ignored (a newer peer may send more); missing ones without a default are an error that names the
field. Golden examples are in ``tests/golden/wire/``.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from vocabulary.finding import Finding
from vocabulary.health import Health
from vocabulary.messages.message_bounds import (
    DIGESTS_MAX,
    GPUS_MAX,
    SECTIONS_MAX,
    SWAPS_MAX,
    WINDOWS_MAX,
    Count,
    FindingBounds,
    Moment,
    Name,
    Number,
    OrderUpdateBounds,
    Ttl,
    Whole,
    Word,
    check_bounds,
    holds_nul,
)
from vocabulary.messages.swap_messages import JobSwap
from vocabulary.messages.telemetry_messages import TelemetryRequest
from vocabulary.order import Order, OrderUpdate

WIRE_VERSION = 1
REPORT_BYTES_MAX = 8 << 20
VERSION_CHARS_MAX, VERSIONS_MAX = 100, 16  # of one text, and of different ones of a kind

T = TypeVar("T")


class WireError(ValueError):
    """A message that cannot be read, or breaks a bound. The text names the field and what was expected.

    `finding` is the id of the one faulty finding, if there is one: without it the rest may be valid.
    """

    def __init__(self, text: str, finding: str = "") -> None:
        super().__init__(text)
        self.finding = finding


class FindingChange(msgspec.Struct, frozen=True):
    """One entry of a node's outbox: the finding as of change number `seq`."""

    seq: Count
    finding: Finding  # within `FindingBounds`


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):  # plain data, never in a cycle
    """One accelerator of a node."""

    index: Whole
    uuid: Name
    pci: Word
    name: Name = ""
    serial: Name = ""


class Versions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is installed and runs on a node; empty if not reported.

    `vbios` and `firmware` (of network adapters): each once.
    """

    healthd: Name = ""
    driver: Name = ""  # NVIDIA's
    kernel: Name = ""
    image: Name = ""  # the operating system's
    bios: Name = ""
    vbios: Annotated[tuple[Name, ...], msgspec.Meta(max_length=GPUS_MAX)] = ()
    firmware: Annotated[tuple[Name, ...], msgspec.Meta(max_length=GPUS_MAX)] = ()

    def tidy(self) -> Versions:
        """Return printable text of bounded length, suitable as names. BIOSes report arbitrary text."""
        return Versions(
            healthd=_replace_unprintable(self.healthd),
            driver=_replace_unprintable(self.driver),
            kernel=_replace_unprintable(self.kernel),
            image=_replace_unprintable(self.image),
            bios=_replace_unprintable(self.bios),
            vbios=_unique_printable(self.vbios),
            firmware=_unique_printable(self.firmware),
        )


def _replace_unprintable(text: str) -> str:
    short = text[:VERSION_CHARS_MAX]
    return short if short.isprintable() else "".join(c if c.isprintable() else "?" for c in short)


def _unique_printable(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({_replace_unprintable(text) for text in texts if text})[:VERSIONS_MAX])


class StepWindow(msgspec.Struct, frozen=True, array_like=True, gc=False):  # same
    """Steps `first` to `first` + `size` - 1 of one rank, of which `steps` were measured. A list on the wire.

    Seconds and tokens are means of those steps; None: the loop does not report them. `step_s` is without saving. `size`
    is a power of two and `first` a multiple of it, so that windows of all ranks of a job can be compared.
    """

    first: Whole
    size: Count
    steps: Count
    step_s: Number
    forward_s: Number | None = None
    backward_s: Number | None = None
    communication_s: Number | None = None
    data_s: Number | None = None
    tokens: Number | None = None


class ProductDigests(msgspec.Struct, frozen=True, array_like=True, gc=False):  # same
    """What a rank's samples of fixed products have shown; a list on the wire. The fields are those of the beacon page."""

    platform: Name
    digests: Annotated[tuple[Word, ...], msgspec.Meta(max_length=DIGESTS_MAX)] = ()
    contradictions: Count = 0
    transients: Count = 0
    last_good_step: Whole = -1


class RankStatus(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):  # as `Gpu`: a fleet has 100 000
    """One trainer rank's current beacon. Times are UTC seconds.

    Step times are seconds: of the newest step, and the median of the last 64; `sections` likewise, by the names of the
    page's sections (data, forward, backward, communication, optimizer, checkpoint, other), if the loop reports them;
    `section` is the current one. Medians and sections may be some seconds older than `at`. Groups and stage identify
    its true peers; -1 and empty: not set. `windows` are its newest complete ones, oldest first: each is sent several
    times, so that a report may be lost.
    """

    job: Name
    attempt: Whole
    rank: Whole
    world: Whole
    pid: Whole
    step: Whole
    phase: Word
    at: Number
    step_seconds: Number = 0.0
    alive: bool = True
    section: Word = ""
    step_median: Number = 0.0
    sections: Annotated[dict[Word, Number], msgspec.Meta(max_length=SECTIONS_MAX)] = {}
    sections_median: Annotated[dict[Word, Number], msgspec.Meta(max_length=SECTIONS_MAX)] = {}
    role: Name = ""
    pipeline_stage: Whole = -1
    tensor_group: Whole = -1
    data_group: Whole = -1
    expert_group: Whole = -1
    gpu: Name = ""  # its UUID
    stack: Word = ""  # what it waits for, as its stack shows (`stack_places`), once it makes no progress
    windows: Annotated[tuple[StepWindow, ...], msgspec.Meta(max_length=WINDOWS_MAX)] = ()
    digests: ProductDigests | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node's complete state, every time: silence for longer than `ttl_s` means unknown, not healthy."""

    version: Count
    node: Name
    boot_id: Word
    agent: Word  # id of this agent process
    seq: Count  # counts this agent's reports
    sent_at: Moment
    ttl_s: Ttl
    health: Health
    changes: tuple[FindingChange, ...] = ()  # at most `CHANGES_PER_REPORT_MAX`
    active: tuple[Finding, ...] = ()  # at most `ACTIVE_MAX`, each within `FindingBounds`
    gpus: Annotated[tuple[Gpu, ...], msgspec.Meta(max_length=GPUS_MAX)] = ()
    ranks: tuple[RankStatus, ...] = ()
    versions: Versions = Versions()
    swaps: Annotated[tuple[JobSwap, ...], msgspec.Meta(max_length=SWAPS_MAX)] = ()  # of jobs whose launcher runs there
    telemetry: msgspec.Raw | msgspec.UnsetType = (
        msgspec.UNSET
    )  # a `TelemetryPart`, decoded separately: it must not spoil the rest


class ReportReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The controller has durably stored every change up to and including `acked_seq`.

    `base`: number of the report that later heartbeats may update; 0: none.
    """

    acked_seq: int
    epoch: int
    telemetry: TelemetryRequest | None = None
    base: int = 0


class OrdersReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """Open orders for the node; each is repeated until it is answered with a final state."""

    orders: tuple[Order, ...]
    telemetry: TelemetryRequest | None = None


class Enrolment(msgspec.Struct, frozen=True):
    """A node's request for a token, with a join secret.

    `digest` is the SHA-256 (hexadecimal) of a token that the node made: then only the node knows the text, and may
    repeat the request when the answer was lost. Empty: the controller makes one.
    """

    node: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    digest: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$", max_length=64)] = ""


class NewToken(msgspec.Struct, frozen=True):
    """A token, returned only once; empty if the node made it."""

    token: str


class UnreadOrder(msgspec.Struct, frozen=True):
    """An order of which only the id can be read: a newer controller knows more kinds. `why` says what is unknown."""

    id: str
    why: str = ""


class ReceivedOrders(msgspec.Struct, frozen=True):
    """An `OrdersReply` as a node of any age reads it: each order by itself."""

    orders: tuple[Order, ...]
    unread: tuple[UnreadOrder, ...] = ()
    telemetry: TelemetryRequest | None = None


class _LooseOrders(msgspec.Struct, frozen=True):
    orders: tuple[msgspec.Raw, ...]
    telemetry: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error, for people and programs: what, where, and what to do.

    `finding` is the id of a report's rejected finding; a node leaves it out and sends the rest again.
    """

    error: str
    detail: str = ""
    todo: str = ""
    finding: str = ""


def encode_message(message: msgspec.Struct) -> bytes:
    """Encode as compact JSON."""
    return msgspec.json.encode(message)


def decode_message(data: bytes | str, kind: type[T]) -> T:
    """Parse and validate JSON.

    Raises:
        WireError: not JSON, or a field is missing or of the wrong type; the text names it.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"{kind.__name__}: {error}") from error
    except RecursionError as error:
        raise WireError(f"{kind.__name__}: nested too deeply") from error


def decode_report(data: bytes) -> Report:
    """Parse a `Report` and check all its bounds (`vocabulary.messages.message_bounds`).

    Raises:
        WireError: it cannot be read, or breaks a bound; `finding` is set if one finding alone is at fault.
    """
    report = decode_message(data, Report)
    nul = holds_nul(data)
    for finding in (*(change.finding for change in report.changes), *report.active):
        try:
            check_bounds(finding, FindingBounds)
        except msgspec.ValidationError as error:
            raise WireError(f"finding {finding.id[:64]!r}: {error}", finding.id[:64]) from error
        if nul and holds_nul(encode_message(finding)):
            raise WireError(f"finding {finding.id!r}: a text holds the character NUL", finding.id)
    if nul:
        raise WireError("Report: a text holds the character NUL")
    return report


def check_order_update(update: OrderUpdate) -> None:
    """Check the bounds of an answer to an order.

    Raises:
        WireError: it breaks one.
    """
    try:
        check_bounds(update, OrderUpdateBounds)
    except msgspec.ValidationError as error:
        raise WireError(f"OrderUpdate: {error}") from error


def decode_orders(data: bytes | str) -> ReceivedOrders:
    """Parse an `OrdersReply`, each order by itself: an unknown one must not block the others.

    Raises:
        WireError: it is no such reply, or holds an order without an id.
    """
    orders: list[Order] = []
    unread: list[UnreadOrder] = []
    loose = decode_message(data, _LooseOrders)
    for raw in loose.orders:
        try:
            orders.append(decode_message(bytes(raw), Order))
        except WireError as error:
            unread.append(UnreadOrder(decode_message(bytes(raw), UnreadOrder).id, str(error)))
    return ReceivedOrders(tuple(orders), tuple(unread), _decode_telemetry_request(loose.telemetry))


def _decode_telemetry_request(raw: msgspec.Raw | msgspec.UnsetType) -> TelemetryRequest | None:
    """Decode a telemetry request; an invalid one counts as none, because it must not block orders."""
    if isinstance(raw, msgspec.UnsetType):
        return None
    try:
        return decode_message(bytes(raw), TelemetryRequest)
    except WireError:
        return None
