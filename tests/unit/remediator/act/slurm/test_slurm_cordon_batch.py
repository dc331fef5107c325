"""Many drains at once on a Slurm that refuses some, is away, or is changed by another hand in the same moment."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from msgspec.structs import replace

from remediator.model.scheduler_hold import ActionOutcome, ActionResult
from remediator.schedulers.scheduler_protocol import NodeCordon
from remediator.schedulers.slurm.slurm_commands import split_hostlist
from remediator.schedulers.slurm.slurm_records import SlurmNode
from tests.unit.remediator.act.slurm.slurm_in_memory import Slurm, centre

NODES = tuple(f"n{n}" for n in range(1, 7))
SHARED = "gpu-healthd: gpu-lost on {} nodes; incident: healthctl nodes show NODE"


@pytest.fixture
def slurm() -> Slurm:
    found = Slurm()
    found.table = {name: SlurmNode(name, frozenset({"IDLE"})) for name in NODES}
    return found


def cordon(
    slurm: Slurm, *nodes: str, cause: str = "gpu-lost", asked: list[set[str]] | None = None
) -> dict[str, ActionOutcome]:
    def may_begin(wanted: Collection[str]) -> Collection[str]:
        if asked is not None:
            asked.append(set(wanted))
        return wanted

    cordons = [NodeCordon(node, f"gpu-healthd: inc-{node} {cause}", cause) for node in nodes]
    return dict(centre(slurm)[0].cordon_many(cordons, may_begin))


def test_one_update_between_two_queries(slurm: Slurm) -> None:
    outcomes = cordon(slurm, *NODES)
    assert {outcome.result for outcome in outcomes.values()} == {ActionResult.DONE}
    assert slurm.updates == [NODES]
    assert slurm.asked == 3
    assert {node.reason for node in slurm.table.values()} == {SHARED.format(6)}


def test_what_slurm_says_itself_is_kept_behind_our_reason(slurm: Slurm) -> None:
    for name in ("n1", "n2", "n3"):
        slurm.table[name] = SlurmNode(
            name, frozenset({"DOWN"}), reason="Not responding" if name != "n3" else "Low CPUs"
        )
    cordon(slurm, *NODES)
    assert sorted(slurm.updates) == [("n1", "n2"), ("n4", "n5", "n6")]
    assert slurm.table["n2"].reason == f"{SHARED.format(2)} (Slurm: Not responding)"
    assert slurm.table["n3"].reason == "gpu-healthd: inc-n3 gpu-lost (Slurm: Low CPUs)", "alone, it has its own"


def test_an_operator_who_drains_right_after_us_keeps_the_node(slurm: Slurm) -> None:
    slurm.between = lambda: slurm.hold("n2", "fan, ask Kim")
    outcomes = cordon(slurm, *NODES)
    assert outcomes["n2"].result is ActionResult.REFUSED
    assert "at the same moment: fan, ask Kim" in outcomes["n2"].detail
    assert [outcomes[node].result for node in NODES if node != "n2"] == [ActionResult.DONE] * 5


def test_a_list_that_slurm_refuses_is_finished_node_by_node(slurm: Slurm) -> None:
    slurm.stops_at = "n4"
    asked: list[set[str]] = []
    outcomes = cordon(slurm, *NODES, asked=asked)
    assert {outcome.result for outcome in outcomes.values()} == {ActionResult.DONE}
    assert [slurm.table[node].reason for node in ("n3", "n4")] == [SHARED.format(6), "gpu-healthd: inc-n4 gpu-lost"]
    assert sorted(map(sorted, asked)) == [sorted(NODES), ["n4"], ["n5"], ["n6"]], "asked again right before each"


def test_an_operators_drain_in_a_list_that_slurm_refuses_is_theirs(slurm: Slurm) -> None:
    slurm.stops_at = "n4"
    slurm.between = lambda: slurm.hold("n5", "fan, ask Kim")
    outcomes = cordon(slurm, *NODES)
    assert outcomes["n5"].result is ActionResult.REFUSED
    assert slurm.table["n5"].reason == "fan, ask Kim"


def test_without_an_answer_afterwards_what_was_accepted_is_done(slurm: Slurm) -> None:
    def away() -> None:
        slurm.away = "slurmctld is gone"

    slurm.between = away
    assert {outcome.result for outcome in cordon(slurm, *NODES).values()} == {ActionResult.DONE}


def test_without_an_answer_afterwards_a_refused_list_is_tried_again_later(slurm: Slurm) -> None:
    def away() -> None:
        slurm.away = "slurmctld is gone"

    slurm.between, slurm.stops_at = away, "n4"
    outcomes = cordon(slurm, *NODES)
    assert {outcome.result for outcome in outcomes.values()} == {ActionResult.FAILED}
    assert slurm.asked == 3, "none is asked for alone while slurmctld gives no answer"
    slurm.away, slurm.between, slurm.stops_at = "", lambda: None, ""
    again = cordon(slurm, *NODES)
    assert [again[node].result for node in NODES] == [ActionResult.ALREADY] * 3 + [ActionResult.DONE] * 3


def test_nodes_of_several_causes_do_not_share_a_reason(slurm: Slurm) -> None:
    scheduler = centre(slurm)[0]
    causes = dict(zip(NODES, ("a", "a", "b", "b", "c", ""), strict=True))
    cordons = [NodeCordon(node, f"gpu-healthd: inc-{node}", cause) for node, cause in causes.items()]
    assert len(dict(scheduler.cordon_many(cordons, lambda nodes: nodes))) == len(NODES)
    assert slurm.updates == [("n1", "n2"), ("n3", "n4")]
    assert slurm.table["n5"].reason == "gpu-healthd: inc-n5"


def test_many_texts_of_slurm_make_few_updates(slurm: Slurm) -> None:
    """Each makes the query before it older."""
    nodes = [f"m{n}" for n in range(24)]
    for at, name in enumerate(nodes):
        text = f"Low RealMemory (reported:{at // 2} < 100.00% of configured:999)"
        slurm.table[name] = SlurmNode(name, frozenset({"DOWN"}), reason=text)
    outcomes = cordon(slurm, *nodes)
    assert {outcome.result for outcome in outcomes.values()} == {ActionResult.DONE}
    assert len(slurm.updates) == 8


def test_a_way_that_takes_no_lists_drains_one_by_one(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "takes_lists", lambda _: False)
    assert len(cordon(slurm, *NODES)) == len(NODES)
    assert slurm.updates == []
    assert slurm.table["n1"] == replace(slurm.table["n1"], reason="gpu-healthd: inc-n1 gpu-lost")


@pytest.mark.parametrize("bytes_max", [1, 7, 100, 100_000])
def test_a_host_list_is_split_and_nothing_is_lost(bytes_max: int) -> None:
    names = [f"gpu-{n}" for n in range(300)] + ["größe"]
    parts = list(split_hostlist(names, bytes_max))
    assert ",".join(parts).split(",") == names
    assert all(len(part.encode()) <= bytes_max or "," not in part for part in parts)
