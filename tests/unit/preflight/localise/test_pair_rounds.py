from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.fault_localisation.pair_rounds import plan_pair_rounds

LEAVES = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def cluster(sizes: list[int]) -> tuple[list[str], dict[str, str]]:
    leaf_of = {f"n{leaf}-{place}": f"leaf{leaf}" for leaf, size in enumerate(sizes) for place in range(size)}
    return list(leaf_of), leaf_of


@given(sizes=LEAVES, count=st.integers(1, 12), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_no_node_twice_in_a_round_and_no_pair_twice_at_all(sizes: list[int], count: int, seed: int) -> None:
    nodes, leaf_of = cluster(sizes)
    planned = plan_pair_rounds(nodes, leaf_of, count, seed)
    for pairs in planned:
        ends = [name for pair in pairs for name in pair]
        assert len(ends) == len(set(ends))
    together = [frozenset(pair) for pairs in planned for pair in pairs]
    assert len(together) == len(set(together))
    for pairs in planned[1:]:
        assert len(pairs) == len(nodes) // 2  # one node at most pauses


@given(sizes=LEAVES, seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_the_first_round_pairs_everybody_that_has_a_neighbour_inside_its_leaf(sizes: list[int], seed: int) -> None:
    nodes, leaf_of = cluster(sizes)
    if len(nodes) > 1:
        first = plan_pair_rounds(nodes, leaf_of, 1, seed)[0]
        assert all(leaf_of[a] == leaf_of[b] for a, b in first)
        assert len(first) == sum(size // 2 for size in sizes)


def test_later_rounds_go_across() -> None:
    nodes, leaf_of = cluster([8] * 8)
    for pairs in plan_pair_rounds(nodes, leaf_of, 5, 3)[1:]:
        assert all(leaf_of[a] != leaf_of[b] for a, b in pairs)


def test_the_28_pairs_of_eight_gpus_are_seven_rounds_of_four() -> None:
    gpus = [f"gpu{index}" for index in range(8)]
    planned = plan_pair_rounds(gpus, {}, 7, 1)
    assert [len(pairs) for pairs in planned] == [4] * 7
    assert len({frozenset(pair) for pairs in planned for pair in pairs}) == 28
    assert len(plan_pair_rounds(gpus, {}, 99, 1)) == 7


def test_the_same_seed_plans_the_same_whatever_order_the_nodes_come_in() -> None:
    nodes, leaf_of = cluster([5, 4, 7])
    assert plan_pair_rounds(nodes, leaf_of, 4, 9) == plan_pair_rounds(nodes[::-1], leaf_of, 4, 9)
    assert plan_pair_rounds(nodes, leaf_of, 4, 9) != plan_pair_rounds(nodes, leaf_of, 4, 10)


def test_of_one_node_there_is_no_round() -> None:
    assert plan_pair_rounds(["a"], {}, 3, 1) == []
    assert plan_pair_rounds([], {}, 3, 1) == []


@pytest.mark.parametrize(("nodes", "count", "says"), [(["a", "a"], 1, "twice"), (["a", "b"], 0, "at least one")])
def test_what_makes_no_sense_is_refused(nodes: list[str], count: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        plan_pair_rounds(nodes, {}, count, 1)
