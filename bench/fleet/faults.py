"""What breaks on a node, when, and for how long it stays so.

Kinds are in the proportions of 419 interruptions of a training on 16 384 GPUs in 54 days (Llama 3, table 5), as far as a node can tell of
them. That training had 3.8 failures per 1000 nodes and day; the rate here is an option, far higher, so that there is something to lose.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind

DAY_S = 86_400.0
LASTS_S = 120.0  # in the mean, until a reading shows the contrary


class Kind(NamedTuple):
    """`weight`: how often, beside the others."""

    check: str
    code: str
    kind: ComponentKind
    severity: Severity
    weight: int


KINDS = (
    Kind("xid", "79", ComponentKind.GPU, Severity.FATAL, 74),
    Kind("xid", "48", ComponentKind.GPU, Severity.FATAL, 74),
    Kind("row_remap", "pending", ComponentKind.GPU, Severity.ERROR, 72),
    Kind("xid", "13", ComponentKind.GPU, Severity.WARNING, 54),
    Kind("infiniband", "down", ComponentKind.NIC_PORT, Severity.ERROR, 42),
    Kind("host_memory", "corrected", ComponentKind.HOST, Severity.WARNING, 32),
    Kind("xid", "95", ComponentKind.GPU, Severity.FATAL, 19),
    Kind("xid", "119", ComponentKind.GPU, Severity.FATAL, 17),
    Kind("gpu_temperature", "hot", ComponentKind.GPU, Severity.WARNING, 6),
)
WEIGHTS = [kind.weight for kind in KINDS]


class Faults:
    """Of one node. `next_s` is how long until something begins or ends; infinity: nothing will."""

    def __init__(self, node: str, per_day: float, dice: random.Random) -> None:
        self._node = node
        self._dice = dice
        self._mean_s = DAY_S / per_day if per_day > 0 else float("inf")
        self._count = 0

    def pause_s(self) -> float:
        """Until the next one begins."""
        return self._dice.expovariate(1 / self._mean_s)

    def lasts_s(self) -> float:
        """How long one stays."""
        return self._dice.expovariate(1 / LASTS_S)

    def new(self, at: float) -> Finding:
        """One that begins now (UTC s), unlike any before."""
        self._count += 1
        kind = self._dice.choices(KINDS, WEIGHTS)[0]
        index = self._dice.randrange(8)
        component = {
            ComponentKind.GPU: Component(
                ComponentKind.GPU, gpu_uuid(self._node, index), f"0000:{index:02x}:00.0", index
            ),
            ComponentKind.NIC_PORT: Component(ComponentKind.NIC_PORT, f"mlx5_{index}/1"),
        }.get(kind.kind, Component(ComponentKind.HOST))
        origin = f"boot:{self._count}"
        return Finding(
            id=finding_id(self._node, kind.check, kind.code, component, origin),
            node=self._node,
            check=kind.check,
            code=kind.code,
            component=component,
            severity=kind.severity,
            summary=f"{kind.check} {kind.code} on {component}, pretended by the load's generator",
            first_seen=at,
            last_seen=at,
            origin=origin,
            level=True,
            evidence={"pretended": True, "count": self._count},
        )


def gpu_uuid(node: str, index: int) -> str:
    """Of a node's GPU."""
    return f"GPU-{node}-{index:04}-4aaa-8bbb-0123456789ab"
