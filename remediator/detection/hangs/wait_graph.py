"""The wait-for graph: its sinks and its cycles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

Graph = Mapping[int, AbstractSet[int]]


def find_sinks(graph: Graph, waiting: AbstractSet[int]) -> set[int]:
    """Return the ranks that others wait for and that wait for no rank."""
    return {target for targets in graph.values() for target in targets} - waiting


def find_final_cycles(graph: Graph) -> list[set[int]]:
    """Return groups of ranks that wait for each other and for no rank outside, smallest first."""
    parts = _strong_components(graph)
    return sorted(
        (part for part in parts if len(part) > 1 and all(graph.get(rank, set()) <= part for rank in part)),
        key=lambda part: (len(part), min(part)),
    )


def _strong_components(graph: Graph) -> Iterable[set[int]]:
    """Tarjan's algorithm, without recursion: a chain may be as long as a job has ranks."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in graph:
        if root in index:
            continue
        path = [(root, iter(sorted(graph.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while path:
            rank, targets = path[-1]
            target = next(targets, None)
            if target is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[rank])
                if low[rank] == index[rank]:
                    cut = stack.index(rank)
                    yield set(stack[cut:])
                    on_stack.difference_update(stack[cut:])
                    del stack[cut:]
            elif target not in index:
                index[target] = low[target] = len(index)
                stack.append(target)
                on_stack.add(target)
                path.append((target, iter(sorted(graph.get(target, ())))))
            elif target in on_stack:
                low[rank] = min(low[rank], index[target])
