"""Stacks of many ranks as one tree, and what a stack says about its rank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocabulary.stacks.stack_places import OFF_THE_GPU, StackPlace, classify_stack
from vocabulary.stacks.stack_tree import RANGES_SHOWN, StackNode, fold_stacks, format_rank_ranges, render_stack_tree

MAIN, TRAIN = "<module> (train.py:40)", "train (train.py:12)"
WAITS = "all_reduce (torch/distributed/distributed_c10d.py:3252)"
READS = "__next__ (torch/utils/data/dataloader.py:725)"
STACKS = st.lists(
    st.tuples(st.integers(0, 600), st.lists(st.sampled_from([MAIN, TRAIN, WAITS, READS]), max_size=6).map(tuple)),
    max_size=40,
)


def test_a_rank_that_is_elsewhere_stands_out() -> None:
    stacks = [(rank, (MAIN, TRAIN, READS if rank == 3 else WAITS)) for rank in range(512)]
    assert list(render_stack_tree(fold_stacks(stacks))) == [
        "ranks 0-511",
        f"  {MAIN}",
        f"  {TRAIN}",
        "  rank 3, in data",
        f"    {READS}",
        "  ranks 0-2,4-511, in collective",
        f"    {WAITS}",
    ]


def test_a_rank_may_end_where_others_go_on() -> None:
    (node,) = fold_stacks([(0, [MAIN]), (1, [MAIN, TRAIN])])
    assert fold_stacks([(0, [MAIN, TRAIN]), (1, [MAIN, WAITS])])[0].place == ""  # nobody is there
    assert (node.ranks, node.frames, node.place) == ((0, 1), (MAIN,), "other")
    assert node.children == (StackNode((1,), (TRAIN,), (), "other"),)


def test_nothing_folds_to_nothing() -> None:
    assert fold_stacks([]) == fold_stacks([(1, [])]) == ()


def walk(nodes: tuple[StackNode, ...], above: tuple[str, ...] = ()) -> list[tuple[int, tuple[str, ...]]]:
    """The stacks that a tree holds."""
    held = []
    for node in nodes:
        frames = (*above, *node.frames)
        inside = walk(node.children, frames)
        assert {rank for rank, _ in inside} <= set(node.ranks)
        assert node.ranks == tuple(sorted(set(node.ranks)))
        assert node.frames
        assert len({child.frames[0] for child in node.children}) == len(node.children)
        held += inside
        if node.place:
            assert node.place == classify_stack(frames).value
            held += [(rank, frames) for rank in node.ranks]
    return held


@given(STACKS)
def test_the_tree_holds_every_stack(stacks: list[tuple[int, tuple[str, ...]]]) -> None:
    tree = fold_stacks(stacks)
    assert {each for each in stacks if each[1]} <= set(walk(tree))
    assert fold_stacks(reversed(stacks)) == tree


@given(STACKS.filter(lambda stacks: len({rank for rank, _ in stacks}) == len(stacks)))
def test_a_rank_is_nowhere_else(stacks: list[tuple[int, tuple[str, ...]]]) -> None:
    frames_of = dict(stacks)
    for rank, frames in walk(fold_stacks(stacks)):
        assert frames_of[rank][: len(frames)] == frames


@given(st.sets(st.integers(0, 60)))
def test_ranges_name_every_rank_once(ranks: set[int]) -> None:
    text, _, left = format_rank_ranges(sorted(ranks)).partition(" and ")
    named = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert len(named) + int(left.removesuffix(" more") or 0) == len(ranks)
    assert named == sorted(ranks)[: len(named)]


def test_a_long_list_of_ranks_is_cut_short() -> None:
    assert format_rank_ranges(range(0, 100, 2)).endswith(f",{2 * RANGES_SHOWN - 2} and {50 - RANGES_SHOWN} more")


@pytest.mark.parametrize(
    ("frame", "place"),
    [
        (WAITS, StackPlace.COLLECTIVE),
        ("ask (healthd/trainer/agreement.py:9)", StackPlace.COLLECTIVE),
        (READS, StackPlace.DATA),
        ("fetch (torch/utils/data/_utils/fetch.py:54)", StackPlace.DATA),
        ("get (multiprocessing/queues.py:113)", StackPlace.DATA),
        ("get (queue.py:171)", StackPlace.DATA),
        ("put (queue.py:171)", StackPlace.OTHER),
        ("save (torch/serialization.py:943)", StackPlace.CHECKPOINT),
        ("write_data (torch/distributed/checkpoint/filesystem.py:1)", StackPlace.CHECKPOINT),
        ("compile_inner (torch/_dynamo/convert_frame.py:1)", StackPlace.COMPILE),
        ("compile_fx_inner (torch/_inductor/compile_fx.py:1)", StackPlace.COMPILE),
        ("compile (triton/compiler/compiler.py:1)", StackPlace.COMPILE),
        ("run (torch/_inductor/compile_fx.py:1)", StackPlace.OTHER),  # compiled code that runs
        ("_fn (torch/_dynamo/eval_frame.py:1)", StackPlace.OTHER),
        ("synchronize (torch/cuda/__init__.py:1)", StackPlace.CUDA_SYNC),
        ("is_available (torch/cuda/__init__.py:1)", StackPlace.OTHER),
        ("forward (torch/nn/parallel/distributed.py:1)", StackPlace.OTHER),
        ("loader (mytorch/utils/data/dataloader.py:1)", StackPlace.OTHER),
        ("nonsense", StackPlace.OTHER),
    ],
)
def test_the_innermost_known_frame_says_what_a_rank_waits_for(frame: str, place: StackPlace) -> None:
    assert classify_stack([MAIN, frame]) is place
    assert classify_stack([MAIN, READS, frame, "helper (lib.py:3)"]) is (
        StackPlace.DATA if place is StackPlace.OTHER else place
    )


def test_a_data_set_that_waits_for_other_ranks_is_in_the_collective() -> None:
    assert classify_stack([MAIN, READS, WAITS]) is StackPlace.COLLECTIVE
    assert StackPlace.COLLECTIVE not in OFF_THE_GPU
