"""Plans rounds of disjoint pairs by the circle method, without repetition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from preflight.fault_localisation.localisation_records import Round

# Number of circle rounds searched for those with the most pairs across leaves; all pairs of 20 000 nodes would be 200
# million.
_ROUNDS_LOOKED_AT_MAX = 512

_Ints = npt.NDArray[np.int64]


def plan_pair_rounds(nodes: Sequence[str], leaf_of: Mapping[str, str], count: int, seed: int) -> list[Round]:
    """Up to `count` rounds of disjoint pairs; no pair occurs twice.

    Round 1 pairs nodes of one leaf only, so it loads no uplink and separates ends from fabric; nodes without a partner pause.
    Later rounds pair across leaves as far as one circle allows, and include all nodes, except one if their count is odd. The
    circle has at most len(nodes) − 1 rounds, or len(nodes) if odd.

    Raises:
        ValueError: a node comes twice, or `count` is under 1.
    """
    if len(set(nodes)) < len(nodes):
        raise ValueError("rounds: a node is listed twice; list every node once")
    if count < 1:
        raise ValueError(f"rounds: count is {count}; ask for at least one round")
    if len(nodes) < 2:
        return []
    chance = np.random.default_rng(seed)
    couples = _pair_neighbours(sorted(nodes), leaf_of, chance)
    seats = _arrange_circle(couples)
    leaves = {name: number for number, name in enumerate(sorted(set(leaf_of.values())))}
    # An empty seat shares its leaf with no node, an unknown leaf with the other unknown ones.
    leaf = np.array([-2 if name is None else leaves.get(leaf_of.get(name, ""), -1) for name in seats])
    last = len(seats) - 2  # the round that `_arrange_circle` filled with the couples
    others = chance.permutation(last)[:_ROUNDS_LOOKED_AT_MAX]
    inside = [_count_inside_pairs(leaf, _build_circle_round(len(seats), int(number))) for number in others]
    chosen = others[np.argsort(inside, kind="stable")][: count - 1]
    first = tuple((a, b) for a, b in couples if a is not None and b is not None and leaf_of.get(a) == leaf_of.get(b))
    return [first, *(_name_pairs(seats, _build_circle_round(len(seats), int(number))) for number in chosen)]


def _pair_neighbours(
    nodes: Sequence[str], leaf_of: Mapping[str, str], chance: np.random.Generator
) -> list[tuple[str | None, str | None]]:
    """Neighbours of one leaf, leaf by leaf; the rest together at the end, one perhaps with an empty seat."""
    members: dict[str | None, list[str]] = {}
    for name in nodes:
        members.setdefault(leaf_of.get(name), []).append(name)
    leaves = list(members.values())
    couples: list[tuple[str | None, str | None]] = []
    left: list[str | None] = []
    for number in chance.permutation(len(leaves)):
        mixed = [leaves[number][place] for place in chance.permutation(len(leaves[number]))]
        couples += zip(mixed[0::2], mixed[1::2], strict=False)
        left += mixed[len(mixed) // 2 * 2 :]
    if len(left) % 2:
        left.append(None)
    return [*couples, *zip(left[0::2], left[1::2], strict=True)]


def _arrange_circle(couples: Sequence[tuple[str | None, str | None]]) -> list[str | None]:
    """Arrange the circle so that its last round consists of the couples, which then never meet again."""
    firsts, seconds = [a for a, _ in couples], [b for _, b in couples]
    return [*firsts, *reversed(seconds[:-1]), seconds[-1]]


def _build_circle_round(seats: int, number: int) -> tuple[_Ints, _Ints]:
    """Round `number` (0 … seats − 2) of the circle: seats i, j with i + j ≡ number; the last seat gets the remaining one."""
    turning = seats - 1
    one = np.arange(turning)
    other = (number - one) % turning
    other[one == other] = turning
    kept = one < other
    return one[kept], other[kept]


def _count_inside_pairs(leaf: _Ints, pairs: tuple[_Ints, _Ints]) -> int:
    return int(np.count_nonzero(leaf[pairs[0]] == leaf[pairs[1]]))


def _name_pairs(seats: Sequence[str | None], pairs: tuple[_Ints, _Ints]) -> Round:
    named = ((seats[a], seats[b]) for a, b in zip(*pairs, strict=True))
    return tuple((a, b) for a, b in named if a is not None and b is not None)
