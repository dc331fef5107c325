"""One look for slow ranks over a job as large as a cluster."""

from __future__ import annotations

import time

import numpy as np

from bench.detect_stragglers import LARGE, Pass, large_passes
from bench.report.records import Beside, Budget, Effort, Figure, Measured, at_most, split_into_repeats
from bench.traces import Floats


def measure_straggler_pass(effort: Effort) -> Measured:
    """Judge the same matrices several times."""
    jobs = LARGE if not effort.quick else LARGE[2:3]
    return Measured(
        figures=tuple(_figure(each) for each in large_passes(effort.either(3, 5), jobs)),
        how="Seconds of processor of one `judge` over made-up step times, as the centre keeps them, one slow rank among them or none, and exactly that was named unless the name says otherwise.",
        because="the pass compares every section of every rank",
        moves="telling sections in fewer windows; a quicker processor",
    )


def _figure(each: Pass) -> Figure:
    told = each.what if each.named == each.slow else f"{each.what}, **named {each.named}**"
    beside = Beside("numpy's medians of the own times", _medians_s(each.own))
    return Figure(named=told, unit="s", repeats=split_into_repeats(each.cpu_s), limits=at_most(p50=1.0), beside=beside)


def _medians_s(own: Floats) -> float:
    began = time.process_time()
    np.median(own, axis=0)
    np.median(own, axis=1)
    return time.process_time() - began


BUDGET = Budget("straggler-pass", "Straggler pass over 100 000 ranks", "≤ 1 s", measure_straggler_pass)
