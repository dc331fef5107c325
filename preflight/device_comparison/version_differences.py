"""Compares the software facts of a group's nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from preflight.results import Evidence

# A difference in one of these makes a job fail, compute different results, or run at the speed of the oldest.
MATTERS = frozenset(
    (
        *(
            "driver",
            "cuda_driver",
            "fabric_manager",
            "nccl",
            "nccl_system",
            "torch",
            "torch_cuda",
            "torch_commit",
            "triton",
        ),
        *(
            "gpus",
            "product",
            "vbios",
            "memory_mib",
            "ecc",
            "mig",
            "compute_mode",
            "power_limit_w",
            "mlx5",
            "peer_memory",
        ),
    )
)
ABSENT = "absent"


class FactDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One fact that differs between nodes.

    `common` is the value of more than half of the nodes, and empty if there is none: then no node is the odd one. `others`
    maps each other value to its nodes. `matters` if a job is affected.
    """

    fact: str
    common: str
    others: dict[str, tuple[str, ...]]
    matters: bool

    def __str__(self) -> str:
        """``driver: 570.86 on most, 570.12 on n3, n7``."""
        others = "; ".join(f"{value} on {', '.join(nodes)}" for value, nodes in self.others.items())
        return f"{self.fact}: {f'{self.common} on most, ' if self.common else ''}{others}"


def find_fact_differences(by_node: Mapping[str, Evidence]) -> tuple[FactDifference, ...]:
    """Every fact that differs, relevant ones first, then by name. A missing fact counts as `ABSENT`."""
    facts = sorted({fact for told in by_node.values() for fact in told})
    found = [difference for fact in facts for difference in _compare_fact(fact, by_node)]
    return tuple(sorted(found, key=lambda difference: (not difference.matters, difference.fact)))


def _compare_fact(fact: str, by_node: Mapping[str, Evidence]) -> Iterator[FactDifference]:
    holders: dict[str, list[str]] = {}
    for node in sorted(by_node):
        holders.setdefault(str(by_node[node].get(fact, ABSENT)), []).append(node)
    if len(holders) < 2:
        return
    common = next((value for value, nodes in holders.items() if 2 * len(nodes) > len(by_node)), "")
    others = {value: tuple(nodes) for value, nodes in sorted(holders.items()) if value != common or not common}
    yield FactDifference(fact=fact, common=common, others=others, matters=fact in MATTERS)
