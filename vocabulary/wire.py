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

WIRE_VERSION = 1
REPORT_BYTES_MAX = 8 << 20
CHANGES_PER_REPORT_MAX = 500

T = TypeVar("T")


class WireError(ValueError):
    """A message that cannot be read. The text names the field and what was expected."""


class FindingChange(msgspec.Struct, frozen=True):
    """One entry of a node's outbox: the finding as it stood after change number `seq`."""

    seq: int
    finding: Finding


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """One accelerator of a node."""

    index: int
    uuid: str
    pci: str
    name: str = ""
    serial: str = ""


class RankStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one trainer rank's beacon says now. Times are UTC seconds.

    Step times are seconds: of the newest step, and the median of the last 64; `sections` likewise, by the names of the
    page's sections (data, forward, backward, communication, optimizer, checkpoint, other), those that the loop tells;
    `section` is the one it is in. Medians and sections may be some seconds older than `at`. Groups and stage say who its
    true peers are; -1 and empty: not told.
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


class ReportReply(msgspec.Struct, frozen=True):
    """The centre has durably stored every change up to and including `acked_seq`."""

    acked_seq: int
    epoch: int


class OrdersReply(msgspec.Struct, frozen=True):
    """Orders that are open for the node; the same ones come again until they are answered with a final state."""

    orders: tuple[Order, ...]


class Enrolment(msgspec.Struct, frozen=True):
    """With a join secret: a node asks for a token of its own."""

    node: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class NewToken(msgspec.Struct, frozen=True):
    """A token, told this once."""

    token: str


class UnreadOrder(msgspec.Struct, frozen=True):
    """An order of which nothing but its id can be read: a newer centre knows more kinds. `why` says what is unknown."""

    id: str
    why: str = ""


class ReceivedOrders(msgspec.Struct, frozen=True):
    """An `OrdersReply` as a node of any age takes it: each order by itself."""

    orders: tuple[Order, ...]
    unread: tuple[UnreadOrder, ...] = ()


class _LooseOrders(msgspec.Struct, frozen=True):
    orders: tuple[msgspec.Raw, ...]


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
    for raw in decode(data, _LooseOrders).orders:
        try:
            orders.append(decode(bytes(raw), Order))
        except WireError as error:
            unread.append(UnreadOrder(decode(bytes(raw), UnreadOrder).id, str(error)))
    return ReceivedOrders(tuple(orders), tuple(unread))
