"""Orders: what the controller may request of a node or of its ranks.

An order is idempotent by its id. A node answers with the state it reached; it may refuse, with the reason.
"""

from __future__ import annotations

import enum

import msgspec


class OrderKind(str, enum.Enum):
    """The kinds of order a node knows. Each must also be allowed by the node's own configuration."""

    CHECKPOINT_THEN_EJECT = "checkpoint_then_eject"  # graceful: all ranks save at one agreed step, then leave
    CHECKPOINT_THEN_STOP = "checkpoint_then_stop"  # the same, and the job is not started again
    REVERT = (
        "revert"  # all ranks leave at one agreed step without saving; what is newer than `before_step` is set aside
    )
    ABORT = "abort"  # survivors leave their collective now
    RUN_PREFLIGHT = "run_preflight"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    COLLECT_EVIDENCE = "collect_evidence"


TRAINER_ORDERS = frozenset(
    {OrderKind.CHECKPOINT_THEN_EJECT, OrderKind.CHECKPOINT_THEN_STOP, OrderKind.REVERT, OrderKind.ABORT}
)


class OrderState(str, enum.Enum):
    """How far an order got on the node."""

    ISSUED = "issued"
    RECEIVED = "received"  # durable on the node
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"  # the node rejects it
    EXPIRED = "expired"

    @property
    def final(self) -> bool:
        """Whether no further update follows."""
        return self in _FINAL


_FINAL = frozenset({OrderState.SUCCEEDED, OrderState.FAILED, OrderState.REFUSED, OrderState.EXPIRED})


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One instruction for one node. `condemned` names the nodes that must leave the job; the others come back.

    `before_step` is for revert: checkpoints of this step and later ones must not be used again.
    """

    id: str
    kind: OrderKind
    node: str
    issued_at: float
    expires_at: float
    incident: str
    reason: str
    job: str = ""
    attempt: int | None = None  # of the job; None: the newest
    condemned: tuple[str, ...] = ()
    gpu: str = ""  # UUID, for reset_gpu
    level: str = ""  # for run_preflight
    before_step: int = -1
    joint: str = ""  # the same in the orders to all nodes of one job
    injected: bool = False

    @property
    def mailbox_id(self) -> str:
        """The order's id for the ranks: they agree on one id, whichever node's order delivered it."""
        return self.joint or self.id


class OrderUpdate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress or result of an order. `data` carries figures: the agreed step, the checkpoint's path, timings."""

    id: str
    state: OrderState
    at: float
    detail: str = ""
    data: dict[str, str | int | float | bool] = {}
