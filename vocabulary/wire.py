"""Messages between a node and the centre, as JSON over HTTP; `WIRE_VERSION` travels in every report.

Unknown fields are ignored (a newer peer may say more); missing ones without a default are an error that names the
field. Golden examples live in ``tests/golden/wire/``.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from vocabulary.finding import Finding
from vocabulary.health import Health
from vocabulary.order import Order
from vocabulary.telemetry import TelemetryWish

WIRE_VERSION = 1
REPORT_BYTES_MAX = 8 << 20
CHANGES_PER_REPORT_MAX = 500
VERSION_CHARS_MAX, VERSIONS_MAX = 100, 16  # of one text, and of different ones of a kind

T = TypeVar("T")


class WireError(ValueError):
    """A message that cannot be read. The text names the field and what was expected."""


class FindingChange(msgspec.Struct, frozen=True):
    """One entry of a node's outbox: the finding as it stood after change number `seq`."""

    seq: int
    finding: Finding


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):  # plain data, never in a cycle
    """One accelerator of a node."""

    index: int
    uuid: str
    pci: str
    name: str = ""
    serial: str = ""


class Versions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is installed and runs on a node; empty where it does not tell. `vbios` and `firmware` (of network adapters): each once."""

    healthd: str = ""
    driver: str = ""  # NVIDIA's
    kernel: str = ""
    image: str = ""  # the operating system's
    bios: str = ""
    vbios: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()

    def tidy(self) -> Versions:
        """The same in printable characters and of bounded length, fit to be a name. BIOSes say what they like."""
        return Versions(
            healthd=_printable(self.healthd),
            driver=_printable(self.driver),
            kernel=_printable(self.kernel),
            image=_printable(self.image),
            bios=_printable(self.bios),
            vbios=_each(self.vbios),
            firmware=_each(self.firmware),
        )


def _printable(text: str) -> str:
    short = text[:VERSION_CHARS_MAX]
    return short if short.isprintable() else "".join(c if c.isprintable() else "?" for c in short)


def _each(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({_printable(text) for text in texts if text})[:VERSIONS_MAX])


class StepWindow(msgspec.Struct, frozen=True, array_like=True, gc=False):  # same
    """Steps in a row of one rank, numbers `first` to `first` + `size` - 1, of which `steps` were measured. A list on the wire.

    Seconds and tokens are means of those steps; None: the loop does not tell them. `step_s` is without saving. `size` is a
    power of two and `first` a multiple of it, so that windows of all ranks of a job can be laid side by side.
    """

    first: int
    size: int
    steps: int
    step_s: float
    forward_s: float | None = None
    backward_s: float | None = None
    communication_s: float | None = None
    data_s: float | None = None
    tokens: float | None = None


class RankStatus(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):  # as `Gpu`: a fleet has 100 000
    """What one trainer rank's beacon says now. Times are UTC seconds.

    Step times are seconds: of the newest step, and the median of the last 64; `sections` likewise, by the names of the
    page's sections (data, forward, backward, communication, optimizer, checkpoint, other), those that the loop tells;
    `section` is the one it is in. Medians and sections may be some seconds older than `at`. Groups and stage say who its
    true peers are; -1 and empty: not told. `windows` are its newest whole ones, oldest first: each is told several times,
    so that a report may be lost.
    """

    job: str
    attempt: int
    rank: int
    world: int
    pid: int
    step: int
    phase: str
    at: float
    step_seconds: float = 0.0
    alive: bool = True
    section: str = ""
    step_median: float = 0.0
    sections: dict[str, float] = {}
    sections_median: dict[str, float] = {}
    role: str = ""
    pipeline_stage: int = -1
    tensor_group: int = -1
    data_group: int = -1
    expert_group: int = -1
    gpu: str = ""  # its UUID
    windows: tuple[StepWindow, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a node asserts, whole, every time: silence for longer than `ttl_s` means unknown, not healthy."""

    version: int
    node: str
    boot_id: str
    agent: str  # id of this agent process
    seq: int  # counts this agent's reports
    sent_at: float
    ttl_s: float
    health: Health
    changes: tuple[FindingChange, ...] = ()
    active: tuple[Finding, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    ranks: tuple[RankStatus, ...] = ()
    versions: Versions = Versions()
    telemetry: msgspec.Raw | msgspec.UnsetType = (
        msgspec.UNSET
    )  # a `TelemetryPart`, read apart: it must not spoil the rest


class ReportReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The centre has durably stored every change up to and including `acked_seq`."""

    acked_seq: int
    epoch: int
    telemetry: TelemetryWish | None = None


class OrdersReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """Orders that are open for the node; the same ones come again until they are answered with a final state."""

    orders: tuple[Order, ...]
    telemetry: TelemetryWish | None = None


class Enrolment(msgspec.Struct, frozen=True):
    """With a join secret: a node asks for a token of its own.

    `digest` is the SHA-256 (hexadecimal) of a token that the node made: then it alone knows the text, and may ask again when
    the answer was lost. Empty: the centre makes one.
    """

    node: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    digest: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$", max_length=64)] = ""


class NewToken(msgspec.Struct, frozen=True):
    """A token, told this once; empty where the node made it."""

    token: str


class UnreadOrder(msgspec.Struct, frozen=True):
    """An order of which nothing but its id can be read: a newer centre knows more kinds. `why` says what is unknown."""

    id: str
    why: str = ""


class ReceivedOrders(msgspec.Struct, frozen=True):
    """An `OrdersReply` as a node of any age takes it: each order by itself."""

    orders: tuple[Order, ...]
    unread: tuple[UnreadOrder, ...] = ()
    telemetry: TelemetryWish | None = None


class _LooseOrders(msgspec.Struct, frozen=True):
    orders: tuple[msgspec.Raw, ...]
    telemetry: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error, for people and programs: what, where, and what to do."""

    error: str
    detail: str = ""
    todo: str = ""


def encode(message: msgspec.Struct) -> bytes:
    """Compact JSON."""
    return msgspec.json.encode(message)


def decode(data: bytes | str, kind: type[T]) -> T:
    """Parse and check JSON.

    Raises:
        WireError: not JSON, or a field is missing or of the wrong type; the text names it.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"{kind.__name__}: {error}") from error
    except RecursionError as error:
        raise WireError(f"{kind.__name__}: nested too deeply") from error


def decode_orders(data: bytes | str) -> ReceivedOrders:
    """Read an `OrdersReply`, each order by itself: one that is not understood must not keep the others from being done.

    Raises:
        WireError: it is no such reply, or holds an order without an id.
    """
    orders: list[Order] = []
    unread: list[UnreadOrder] = []
    loose = decode(data, _LooseOrders)
    for raw in loose.orders:
        try:
            orders.append(decode(bytes(raw), Order))
        except WireError as error:
            unread.append(UnreadOrder(decode(bytes(raw), UnreadOrder).id, str(error)))
    return ReceivedOrders(tuple(orders), tuple(unread), _wish(loose.telemetry))


def _wish(raw: msgspec.Raw | msgspec.UnsetType) -> TelemetryWish | None:
    """What a person wants to see must never keep an order from being done: a wish that is not understood is none."""
    if isinstance(raw, msgspec.UnsetType):
        return None
    try:
        return decode(bytes(raw), TelemetryWish)
    except WireError:
        return None
