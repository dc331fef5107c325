from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.detection.hangs.call_records import Group, HangVerdict, Operation, Snapshot, Transfer
from remediator.detection.hangs.hang_verdict import judge_hang
from remediator.detection.hangs.wait_graph import find_final_cycles, find_sinks

WORLD = {"world": (0, 1, 2, 3)}
PAIRS = {**WORLD, "a": (0, 1), "b": (2, 3), "c": (0, 2), "d": (1, 3)}

Calls = Mapping[int, Sequence[str]]  # rank → "group number state [name] [size]"


def snapshot(
    calls: Calls, groups: Mapping[str, tuple[int, ...]] = WORLD, *, ranks: int = 4, whole: bool = True, roles: str = ""
) -> Snapshot:
    operations = []
    for rank, lines in calls.items():
        for order, line in enumerate(lines):
            group, number, state, *more = line.split()
            name, size = more[0] if more else "all_reduce", more[1] if len(more) > 1 else "8"
            ends = name.partition("->")
            operations.append(
                Operation(
                    rank=rank, group=group, number=int(number), name=name, order=order, state=state,
                    inputs=(int(size),), outputs=(int(size),), input_dtypes=("Float",), output_dtypes=("Float",),
                    transfers=(Transfer(int(ends[0][-1]), int(ends[2]), int(size)),) if ends[1] else (),
                )
            )  # fmt: skip
    return Snapshot(
        operations=operations,
        groups={name: Group(name, roles, members) for name, members in groups.items()},
        recorded=frozenset(calls),
        everybody=tuple(range(ranks)),
        whole=frozenset(calls) if whole else frozenset(),
    )


def blame(
    calls: Calls, groups: Mapping[str, tuple[int, ...]] = WORLD, **more: bool
) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    found = judge_hang(snapshot(calls, groups, **more))  # type: ignore[arg-type]  # by name
    return found.kind, found.culprits, found.victims


def test_who_never_called_and_waits_nowhere_is_to_blame() -> None:
    calls = {rank: ["world 1 completed", "world 2 started"] for rank in (0, 1, 3)} | {2: ["world 1 completed"]}
    assert blame(calls) == ("stuck_compute", (2,), (0, 1, 3))


def test_a_rank_without_a_record_is_dead() -> None:
    assert blame({rank: ["world 1 started"] for rank in (0, 1, 2)}) == ("dead_rank", (3,), (0, 1, 2))


def test_a_rank_without_a_record_is_spared_where_another_explains_the_wait() -> None:
    calls = {
        0: ["world 1 completed", "world 2 pending"],
        1: ["world 1 completed"],
        2: ["world 1 completed", "world 2 pending"],
    }
    assert blame(calls) == ("stuck_compute", (1,), (0, 2))


def test_the_chase_goes_from_group_to_group() -> None:
    calls = {0: ["a 1 pending"], 1: ["d 1 pending"], 2: ["c 1 completed", "b 1 pending"], 3: ["c 9 completed"]}
    assert blame(calls, PAIRS) == ("stuck_compute", (3,), (0, 1, 2))


def test_all_done_is_nobody_and_so_is_nothing() -> None:
    assert blame({rank: ["world 1 completed", "world 2 completed"] for rank in range(4)}) == ("none", (), ())
    assert blame({}) == ("none", (), ())


def test_all_in_and_none_out_is_the_network() -> None:
    assert blame({rank: ["world 1 started"] for rank in range(4)}) == ("network", (), (0, 1, 2, 3))


def test_one_that_stays_inside_when_most_came_out_is_named() -> None:
    calls = {rank: ["world 1 completed", "world 2 pending"] for rank in (0, 1, 2)} | {3: ["world 1 pending"]}
    assert blame(calls) == ("unfinished_call", (3,), (0, 1, 2))


def test_a_call_queued_on_its_gpu_while_others_run_it_is_that_gpu() -> None:
    calls = {rank: ["world 1 started"] for rank in (0, 1, 2)} | {3: ["world 1 scheduled"]}
    assert blame(calls) == ("stuck_compute", (3,), (0, 1, 2))


def test_calls_made_ahead_do_not_hide_who_is_not_there() -> None:
    calls = {
        0: ["a 1 pending", "world 1 pending"], 1: ["world 1 pending"], 2: ["b 1 completed", "world 1 pending"],
        3: ["b 1 completed", "world 1 pending"],
    }  # fmt: skip
    assert blame(calls, PAIRS) == ("mismatched_collectives", (0, 1), (2, 3)), (
        "0 and 1 disagree, and nobody can tell who is right"
    )
    del calls[1][0]
    assert blame(calls, PAIRS) == ("stuck_compute", (1,), (0, 2, 3))


@pytest.mark.parametrize(
    "odd", ["world 1 started barrier", "world 1 started all_reduce 9", "world 1 scheduled all_gather"]
)
def test_who_called_something_else_is_named(odd: str) -> None:
    calls = {rank: ["world 1 started"] for rank in (0, 1, 2)} | {3: [odd]}
    assert blame(calls) == ("mismatched_collectives", (3,), (0, 1, 2))


def test_two_that_differ_are_told_apart_by_groups_of_the_same_role() -> None:
    calls = {0: ["a 1 started"], 1: ["a 1 started all_reduce 9"], 2: ["b 1 completed"], 3: ["b 1 completed"]}
    assert judge_hang(snapshot(calls, PAIRS, roles="tp")).culprits == (1,)
    assert judge_hang(snapshot(calls, PAIRS)).culprits == (0, 1)


@pytest.mark.parametrize("name", ["all_to_all", "all_to_all_single", "reduce_scatter_v", "coalesced"])
def test_what_may_be_uneven_is_not_compared_by_size(name: str) -> None:
    assert blame({rank: [f"world 1 started {name} {rank + 1}"] for rank in range(4)})[:2] == ("network", ())


def test_the_one_that_calls_two_groups_in_the_other_order_is_named() -> None:
    groups = {"x": (0, 1, 2, 3), "y": (0, 1, 2, 3)}
    calls = {rank: ["x 1 pending"] for rank in (0, 1, 2)} | {3: ["y 1 pending"]}
    assert blame(calls, groups) == ("mismatched_collectives", (3,), (0, 1, 2))
    ahead = {rank: ["x 1 pending", "y 1 pending"] for rank in (0, 1, 2)} | {3: ["y 1 pending", "x 1 pending"]}
    assert blame(ahead, groups) == ("mismatched_collectives", (3,), (0, 1, 2))


def test_what_somebody_came_out_of_everybody_went_into() -> None:
    calls = {0: ["world 1 completed", "world 2 completed"], 1: ["world 1 pending"]} | {
        rank: ["world 1 completed", "world 2 completed"] for rank in (2, 3)
    }
    assert blame(calls) == ("none", (), ()), "rank 1's record is older than the others'"


def test_a_sender_that_came_out_of_a_broadcast_proves_nothing() -> None:
    calls = {
        0: ["world 1 completed broadcast"],
        1: ["world 1 started broadcast"],
        2: [],
        3: ["world 1 started broadcast"],
    }
    assert blame(calls) == ("stuck_compute", (2,), (1, 3))


def test_what_was_given_up_is_not_done() -> None:
    calls = {rank: ["world 1 ended", "world 2 ended"] for rank in (0, 1, 3)} | {2: ["world 1 ended"]}
    assert blame(calls) == ("stuck_compute", (2,), (0, 1, 3))


def test_a_receiver_waits_for_its_sender() -> None:
    groups = {"pp": (0, 1, 2, 3)}
    calls = {
        0: ["pp 1 completed send0->1"],
        1: ["pp 1 completed recv0->1", "pp 2 pending recv0->1"],
        2: ["pp 1 pending recv1->2"],
        3: ["pp 1 pending recv2->3"],
    }
    assert blame(calls, groups) == ("stuck_compute", (0,), (1, 2, 3))


def test_a_message_with_both_ends_is_the_network_and_of_two_sizes_a_mistake() -> None:
    groups = {"pp": (0, 1, 2, 3)}
    both = {0: ["pp 1 started send0->1 8"], 1: ["pp 1 started recv0->1 8"], 2: [], 3: []}
    assert blame(both, groups) == ("network", (), (0, 1))
    both[1] = ["pp 1 started recv0->1 9"]
    assert blame(both, groups) == ("mismatched_collectives", (0, 1), ())


@pytest.mark.parametrize("whole", [True, False])
def test_two_that_both_send_first_wait_for_each_other(whole: bool) -> None:  # noqa: FBT001 - a parameter of the test
    calls = {0: ["pp 1 started send0->1"], 1: ["pp 1 started send1->0"]}
    assert blame(calls, {"pp": (0, 1)}, whole=whole)[:2] == ("mismatched_collectives", (0, 1))


def test_how_far_a_rank_is_counts_when_its_calls_are_gone_from_the_ring() -> None:
    calls = {rank: ["world 5 pending"] for rank in (0, 1, 2)} | {3: ["b 70 completed"]}
    found = snapshot(calls, PAIRS)
    assert judge_hang(found).culprits == (3,)
    assert (
        judge_hang(
            Snapshot(
                operations=found.operations, groups=found.groups, recorded=found.recorded, entered={(3, "world"): 5}
            )
        ).culprits
        == ()
    )


def test_the_reasons_say_that_who_reported_is_not_who_is_to_blame() -> None:
    found = snapshot({0: ["world 2 started"], 1: ["world 2 started"], 2: ["world 1 completed"], 3: ["world 2 started"]})
    told = [msgspec.structs.replace(found.operations[0], timed_out=True), *found.operations[1:]]
    verdict = judge_hang(Snapshot(operations=told, groups=found.groups, recorded=found.recorded))
    assert verdict.culprits == (2,)
    assert any("rank 0 reported the timeout" in reason for reason in verdict.reasons)


OPERATIONS = st.lists(
    st.builds(
        Operation,
        rank=st.integers(0, 4), group=st.sampled_from(["world", "a", "b", "c"]), number=st.integers(-1, 4),
        name=st.sampled_from(["all_reduce", "broadcast", "all_to_all", "coalesced"]), order=st.integers(0, 9),
        state=st.sampled_from(["scheduled", "started", "completed", "pending", "ended", "?"]),
        inputs=st.lists(st.integers(0, 2), max_size=2).map(tuple),
        transfers=st.lists(st.builds(Transfer, st.integers(0, 4), st.integers(0, 4), st.integers(0, 1)), max_size=2).map(tuple),
        created_ns=st.integers(0, 10**10),
    ),
    max_size=30,
)  # fmt: skip


def verdict_of(operations: Sequence[Operation]) -> HangVerdict:
    groups = {name: Group(name, "", members) for name, members in PAIRS.items()}
    return judge_hang(
        Snapshot(
            operations=operations,
            groups=groups,
            recorded=frozenset(o.rank for o in operations),
            everybody=(0, 1, 2, 3, 4),
        )
    )


@given(OPERATIONS, st.randoms(use_true_random=False))
def test_any_record_is_judged_and_nobody_is_both(operations: list[Operation], rng: random.Random) -> None:
    found = verdict_of(operations)
    assert not set(found.culprits) & set(found.victims)
    assert (found.kind == "none") == (not found.stuck)
    assert found.reasons
    unique = list({(o.rank, o.group, o.number, o.order): o for o in operations}.values())
    unique = list({(o.rank, o.order): o for o in unique}.values())
    unique = list({(o.rank, o.group, o.number): o for o in unique}.values())
    ours = verdict_of(unique)
    rng.shuffle(unique)
    theirs = verdict_of(unique)
    assert (ours.kind, ours.culprits, ours.victims) == (theirs.kind, theirs.culprits, theirs.victims)


def test_sinks_and_circles() -> None:
    assert find_sinks({1: {2, 3}, 2: {3}}, {1, 2}) == {3}
    assert find_final_cycles({1: {2}, 2: {3}, 3: {2}, 4: {1}}) == [{2, 3}]
    assert find_final_cycles({1: {2}, 2: {1, 3}}) == []
    chain = {rank: {rank + 1} for rank in range(100_000)}
    assert find_sinks(chain, chain.keys()) == {100_000}
    assert find_final_cycles({**chain, 100_000: {0}}) == [set(range(100_001))]


def test_calls_that_run_in_crossed_orders_are_told_by_their_order() -> None:
    groups = {"x": (0, 1, 2, 3), "y": (0, 1, 2, 3)}
    calls = {rank: ["x 1 started", "y 1 started"] for rank in (0, 1, 2)} | {3: ["y 1 started", "x 1 started"]}
    assert blame(calls, groups) == ("mismatched_collectives", (3,), (0, 1, 2))


def test_of_two_ranks_without_a_record_the_one_that_a_chain_leads_to() -> None:
    calls = {0: ["world 2 pending"], 1: ["world 1 completed", "e 1 pending"]}
    assert blame(calls, {**WORLD, "e": (1, 2)}) == ("dead_rank", (2,), (0, 1))


def test_a_record_that_ends_early_is_not_held_against_its_rank_where_another_came_out() -> None:
    calls = {0: ["world 1 completed"], 1: ["a 1 completed"], 2: ["world 1 pending"], 3: ["world 1 completed"]}
    assert blame(calls, PAIRS)[:2] == ("unfinished_call", (2,))


def test_a_call_that_one_rank_alone_made_is_one_too_many() -> None:
    calls = {rank: ["world 1 completed"] for rank in (1, 2, 3)} | {0: ["world 1 completed", "world 2 started"]}
    assert blame(calls) == ("mismatched_collectives", (0,), (1, 2, 3))
    calls[1].append("world 2 started")
    assert blame(calls) == ("stuck_compute", (2, 3), (0, 1))


PAIRED = {"t0": (0, 1), "t2": (2, 3), "t4": (4, 5), "t6": (6, 7)}


def silent(calls: Calls, groups: Mapping[str, tuple[int, ...]]) -> tuple[str, tuple[int, ...]]:
    """The verdict on eight ranks, of which some left no record; groups whose names begin alike have one role."""
    shown = snapshot(calls, groups, ranks=8)
    roles = {name: msgspec.structs.replace(group, description=name[0]) for name, group in shown.groups.items()}
    found = judge_hang(msgspec.structs.replace(shown, groups=roles))
    return found.kind, found.culprits


def test_a_lost_record_is_no_death_where_the_dead_one_is_missed_alone_elsewhere() -> None:
    calls = {0: ["t0 1 started"]} | {rank: ["t2 1 completed", "d 2 started"] for rank in (3, 7)}
    groups = {**PAIRED, "d": (1, 3, 5, 7)}
    assert silent(calls, groups) == ("dead_rank", (1,)), "1 and 5 are missed in d, and only 1 in t0"
    assert silent({rank: calls[rank] for rank in (3, 7)}, groups) == ("dead_rank", (1, 5)), "nothing tells them apart"


def test_a_lost_record_is_no_death_where_a_rank_like_it_waits_for_another() -> None:
    calls = {
        0: ["t0 1 started"], 3: ["t2 1 completed"], 4: ["t4 1 completed", "t4 2 started"], 6: ["t6 1 completed", "t6 2 started"],
        7: ["t6 1 completed", "d1 2 started"],
    }  # fmt: skip
    groups = {**PAIRED, "d1": (1, 7), "d3": (3, 5)}
    assert silent(calls, groups) == ("dead_rank", (1,)), "5 may wait in d3 as 7 does in d1"
    del calls[7]
    assert silent(calls, groups) == ("dead_rank", (1, 5, 7)), "nobody is known to wait as 5 and 7 may"


def test_a_call_that_all_are_in_explains_those_without_a_record() -> None:
    calls = {2: ["t2 1 started"], 3: ["t2 1 started"], 4: ["t4 1 started"]}
    assert silent(calls, PAIRED) == ("network", ())
    assert silent({4: calls[4]}, PAIRED) == ("dead_rank", (5,))
