"""A node that is a large part of its peers: what looking for it costs where there are many nodes."""

from __future__ import annotations

import sys
from types import FrameType

import numpy as np

from remediator.detection.stragglers import small_group_baseline
from remediator.detection.stragglers.step_trace import StepTrace

STEPS = 40


def lines_run(nodes: int) -> int:
    """How many lines the search runs through for so many nodes of eight ranks."""
    ranks = 8 * nodes
    compute = np.exp(0.02 * np.random.default_rng(0).standard_normal((STEPS, ranks)))
    unknown = np.full(ranks, -1)
    trace = StepTrace(
        steps=np.arange(STEPS),
        ranks=np.arange(ranks),
        cells={"compute_s": compute},
        places={"dp_rank": unknown, "pp_rank": unknown, "tp_rank": unknown},
        codes={"stage": unknown, "role": unknown, "node": np.arange(ranks) // 8},
        names={"stage": (), "role": (), "node": tuple(f"n{number}" for number in range(nodes))},
        began=np.zeros(STEPS, dtype=np.bool_),
    )
    count = 0

    def each(frame: FrameType, event: str, _: object) -> object:
        nonlocal count
        count += event == "line" and frame.f_code is small_group_baseline.find_slow_small_group.__code__
        return each

    before = sys.gettrace()
    sys.settrace(each)  # type: ignore[arg-type]  # it returns itself, which cannot be written as a type
    try:
        found = small_group_baseline.find_slow_small_group(
            trace, compute, np.zeros(ranks, dtype=np.int64), np.ones(STEPS, dtype=np.bool_)
        )
    finally:
        sys.settrace(before)
    assert found is None
    return count


def test_nodes_that_are_a_small_part_are_not_looked_at_one_by_one() -> None:
    assert lines_run(16) == lines_run(160)
