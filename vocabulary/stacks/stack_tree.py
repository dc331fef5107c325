"""Folds the stacks of many ranks into one tree: ranks that are at the same place stand together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from vocabulary.stacks.stack_places import StackPlace, classify_stack

RANGES_SHOWN = 16


class StackNode(NamedTuple):
    """Frames that the same ranks share, outermost first; `place` is what they wait for if stacks end here, else empty.

    `ranks` are sorted; those that are in no child end here.
    """

    ranks: tuple[int, ...]
    frames: tuple[str, ...]
    children: tuple[StackNode, ...] = ()
    place: str = ""


def fold_stacks(stacks: Iterable[tuple[int, Sequence[str]]]) -> tuple[StackNode, ...]:
    """Return the tree of these ranks' stacks, outermost frames first; the smallest groups of ranks first.

    A rank that comes twice counts once, at each of its places.
    """
    by_stack: dict[tuple[str, ...], set[int]] = {}
    for rank, frames in stacks:
        by_stack.setdefault(tuple(frames), set()).add(rank)
    return _fold_level(sorted(by_stack.items()), 0)


def _fold_level(stacks: Sequence[tuple[tuple[str, ...], set[int]]], depth: int) -> tuple[StackNode, ...]:
    """Fold sorted stacks that agree in their first `depth` frames."""
    longer = [each for each in stacks if len(each[0]) > depth]
    nodes = [_fold_branch(list(of_frame), depth) for _, of_frame in groupby(longer, lambda each: each[0][depth])]
    return tuple(sorted(nodes, key=lambda node: (len(node.ranks), node.ranks)))


def _fold_branch(stacks: list[tuple[tuple[str, ...], set[int]]], depth: int) -> StackNode:
    """Fold sorted stacks that agree in one more frame: as far as all of them agree, they are one node."""
    shortest, last = stacks[0][0], stacks[-1][0]  # what the first and the last of sorted stacks share, all share
    end = depth + 1
    while end < min(len(shortest), len(last)) and shortest[end] == last[end]:
        end += 1
    ranks = tuple(sorted(set().union(*(of_stack for _, of_stack in stacks))))
    ends_here = any(len(frames) == end for frames, _ in stacks)
    place = classify_stack(shortest[:end]).value if ends_here else ""
    return StackNode(ranks, shortest[depth:end], _fold_level(stacks, end), place)


def format_rank_ranges(ranks: Sequence[int]) -> str:
    """Return sorted ranks as text.

    >>> format_rank_ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    ranges: list[list[int]] = []
    for rank in ranks:
        if ranges and ranges[-1][1] == rank - 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    named = [f"{first}-{last}" if last > first else str(first) for first, last in ranges[:RANGES_SHOWN]]
    left = sum(last - first + 1 for first, last in ranges[RANGES_SHOWN:])
    return ",".join(named) + (f" and {left} more" if left else "")


def render_stack_tree(nodes: Sequence[StackNode], depth: int = 0) -> Iterator[str]:
    """Yield the tree as lines of text: each group's ranks, what they wait for, and below that their frames."""
    for node in nodes:
        indent = "  " * depth
        waits = f", in {node.place}" if node.place and node.place != StackPlace.OTHER.value else ""
        word = "rank" if len(node.ranks) == 1 else "ranks"
        yield f"{indent}{word} {format_rank_ranges(node.ranks)}{waits}"
        yield from (f"{indent}  {frame}" for frame in node.frames)
        yield from render_stack_tree(node.children, depth + 1)
