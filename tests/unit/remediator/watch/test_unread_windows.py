"""A report's windows are told several times, and not unpacked each time: none is lost by it."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from remediator.monitoring.job_monitor import UNREAD_S, JobMonitor
from remediator.monitoring.step_windows import NodeRankReport
from tests.unit.remediator.watch.fleet import ROW_S, TRAIN, Fleet

ROWS = 48


def bare(word: NodeRankReport) -> NodeRankReport:
    return word._replace(ranks=[replace(rank, windows=()) for rank in word.ranks])


@pytest.mark.parametrize("lost", [0, 1], ids=["all reports come", "every other report is lost"])
def test_every_window_is_heard_though_few_reports_are_unpacked(lost: int) -> None:
    fleet, watch, unpacked = Fleet(), JobMonitor(TRAIN), 0
    for row in range(ROWS):
        for word in fleet.say():
            if lost and row % 2:
                continue
            if watch.wants(word.node, word.at):
                unpacked += 1
                watch.take([word])
            else:
                watch.note(bare(word))
            assert watch.words[word.node].at == fleet.now - ROW_S, "who speaks is known by each report"
    assert unpacked <= ROWS * len(fleet.names) / 3
    (crew,) = watch._crews
    timings = crew.timings
    steps = timings.trace(timings.oldest, timings.frontier + 1).cells["step_s"]
    assert steps.shape == (timings.frontier + 1 - timings.oldest, 16)
    assert not np.isnan(steps).any()
    assert timings.frontier >= ROWS - 1 - UNREAD_S / ROW_S - 2 * lost


@pytest.mark.parametrize("length", [2.0**52, -1.0, 0.0])
def test_no_word_of_a_node_keeps_its_windows_unread_for_long(length: float) -> None:
    fleet, watch = Fleet(nodes=1), JobMonitor(TRAIN)
    (word,) = fleet.say()
    said = [replace(rank, windows=(replace(rank.windows[0], step_s=length),)) for rank in word.ranks]
    watch.take([word._replace(ranks=said)])
    assert watch.wants(word.node, word.at + UNREAD_S)
    assert watch.wants(word.node, word.at) is (length <= 0)


def test_who_told_no_windows_is_heard_at_every_word() -> None:
    fleet, watch = Fleet(nodes=1), JobMonitor(TRAIN)
    (word,) = fleet.say()
    watch.take([bare(word)])
    assert watch.wants(word.node, word.at + 0.1)
