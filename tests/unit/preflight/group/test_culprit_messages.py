"""Who of a group is to tell what to its own healthd."""

from __future__ import annotations

from typing import Any

import msgspec

from preflight.fault_localisation.localisation_records import Kind
from preflight.group.culprit_messages import build_accusations
from preflight.group.group_records import GroupDocument, Named, NodeRecord, SelfTestResult, Standing
from preflight.results import Verdict


def document(culprits: tuple[Named, ...], *nodes: NodeRecord) -> GroupDocument:
    empty: dict[str, Any] = {
        field.name: () if "tuple" in str(field.type) else "" for field in msgspec.structs.fields(GroupDocument)
    }
    return GroupDocument(**(empty | {"culprits": culprits, "nodes": nodes}))


def node(rank: int, own: SelfTestResult | None = None) -> NodeRecord:
    standing = Standing.UNFIT if own is not None and own.verdict is Verdict.FAIL else Standing.TESTED
    return NodeRecord(rank=rank, node=f"n{rank}", standing=standing, own=own)


def test_a_bad_link_is_told_at_both_ends_and_accuses_neither() -> None:
    link, culprit = Named(kind=Kind.LINK, where=("n0", "n1")), Named(kind=Kind.NODE, where=("n1",))
    said = build_accusations(document((link,), node(0), node(1), node(2)))
    assert {rank: one.verdict for rank, one in said.items()} == dict.fromkeys((0, 1), Verdict.INCONCLUSIVE)
    said = build_accusations(document((link, culprit), node(0), node(1)))
    assert said[1].verdict is Verdict.FAIL  # what is certain comes first


def test_an_adapter_is_told_by_its_name_and_a_rail_of_a_gpu_is_none() -> None:
    named = tuple(Named(kind=Kind.NIC, where=(f"n{n}",), rail=1, nic=nic) for n, nic in enumerate(("mlx5_1", "cuda:1")))
    said = build_accusations(document(named, node(0), node(1)))
    assert (said[0].nic, said[1].nic) == ("mlx5_1", "")
    assert "cuda:1" in said[1].reason


def test_a_failed_test_of_its_own_is_told_once() -> None:
    culprits = tuple(Named(kind=Kind.NODE, where=(f"n{n}",), evidence=("failed its own test: x",)) for n in range(2))
    owns = [SelfTestResult(verdict=Verdict.FAIL, reason="x", told=told) for told in (True, False)]
    assert list(build_accusations(document(culprits, *(node(n, own) for n, own in enumerate(owns))))) == [1]
