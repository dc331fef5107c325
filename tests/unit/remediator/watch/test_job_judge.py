"""Jobs are judged alike from whole reports and from heartbeats, here and in a process, by one judge or by several."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remediator.model.journal_records import JobRef
from remediator.monitoring.analysis_passes import PASS_ROWS
from remediator.monitoring.detector_findings import detector_origin
from remediator.monitoring.heartbeat_table import RankHeartbeat, read_heartbeats
from remediator.monitoring.job_judge import JobJudge, JudgeInput, JudgeOutput, NodeUpdate, shard_of
from remediator.monitoring.job_monitor import TOGETHER_S, UNREAD_S, rank_numbers
from remediator.monitoring.judge_process import JudgeGoneError, JudgeProcess
from remediator.monitoring.step_windows import NodeRankReport, StepWindowMatrix
from tests.unit.remediator.watch.fleet import ROW_S, Fleet, own
from tests.unit.remediator.watch.test_job_watcher import Leader
from tests.unit.remediator.watch.test_slow_jobs import slow
from vocabulary.finding import Finding
from vocabulary.health import Health
from vocabulary.messages.heartbeat import Heartbeat, build_heartbeat, newest_windows
from vocabulary.messages.wire import RankStatus, Report, StepWindow

ROWS = 3 * PASS_ROWS + 8
Step = Callable[[JudgeInput], JudgeOutput]


def report(node: str, ranks: Sequence[RankStatus], seq: int, at: float) -> Report:
    return Report(
        version=1, node=node, boot_id="b", agent="a", seq=seq, sent_at=at, ttl_s=30.0, health=Health.HEALTHY,
        ranks=tuple(ranks),
    )  # fmt: skip


class Reporting:
    """Nodes that report whole, or a whole report first and heartbeats after it."""

    def __init__(self, *, heartbeats: bool, job: str = "train") -> None:
        self.fleet, self._job, self._heartbeats = Fleet(), job, heartbeats
        self._base: dict[str, Report] = {}
        self._last: dict[str, Report] = {}

    def say(self) -> tuple[float, list[NodeUpdate]]:
        heard = self.fleet.say(slow(5))
        return heard[0].at, [self._update(word) for word in heard]

    def _update(self, word: NodeRankReport) -> NodeUpdate:
        ranks = [replace(rank, job=self._job) for rank in word.ranks]
        now = report(word.node, ranks, self.fleet.row, word.at)
        base, last = self._base.get(word.node), self._last.get(word.node)
        self._last[word.node] = now
        if self._heartbeats and base is not None and last is not None:
            beat = build_heartbeat(base, now, newest_windows(last))
            assert beat is not None
            return NodeUpdate(word.node, word.at, word.at, 30.0, None, (), (beat,))
        self._base[word.node] = now
        packed = tuple(msgspec.msgpack.encode(rank.windows) for rank in ranks)
        bare = tuple(replace(rank, windows=()) for rank in ranks)
        return NodeUpdate(word.node, word.at, word.at, 30.0, bare, packed, ())


class Known:
    """What the pipeline knows: the news of all judges, which they get back."""

    def __init__(self) -> None:
        self.findings: dict[str, Finding] = {}
        self._changed: tuple[Finding, ...] = ()

    def judge(self, now: float, updates: Sequence[NodeUpdate], steps: Sequence[Step]) -> None:
        changed, self._changed = self._changed, ()
        for step in steps:
            found = step(JudgeInput(now, updates=tuple(updates), findings=changed))
            assert not found.faults
            self._changed += tuple(each for news in found.news for each in news)
        self.findings |= {each.id: each for each in self._changed}

    @property
    def concluded(self) -> list[tuple[str, str, str]]:
        return sorted((f.node, f.kind, str(f.evidence.get("job"))) for f in self.findings.values() if f.active)


def judged(steps: Sequence[Step], *fleets: Reporting) -> Known:
    known = Known()
    for _ in range(ROWS):
        said = [fleet.say() for fleet in fleets]
        known.judge(said[0][0] + 0.1, [update for _, updates in said for update in updates], steps)
    return known


def test_heartbeats_tell_as_much_as_reports() -> None:
    whole = judged([JobJudge().step], Reporting(heartbeats=False))
    beats = judged([JobJudge().step], Reporting(heartbeats=True))
    assert beats.concluded == whole.concluded == [("n0", "straggler/gpu", "train")]
    (one,), (other,) = whole.findings.values(), beats.findings.values()
    assert (one.component, one.severity) == (other.component, other.severity)
    assert -TOGETHER_S - ROW_S <= one.first_seen - other.first_seen <= UNREAD_S, "reports are not read each time"


def test_a_process_judges_as_this_one() -> None:
    process = JudgeProcess(0, 1)
    try:
        there = judged([process.step], Reporting(heartbeats=True))
    finally:
        process.close()
    here = judged([JobJudge().step], Reporting(heartbeats=True))
    assert there.findings == here.findings
    assert there.concluded


def finding_of(job: str, node: str) -> Finding:
    found = own(node, "straggler/gpu")
    origin = detector_origin("straggler", JobRef(job, 1))
    return replace(found, origin=origin, evidence={"job": job, "level": "watch"}, last_seen=1.0)


def test_several_judges_divide_the_jobs_and_end_none_of_another() -> None:
    names = ["train", *(name for name in map("job-{}".format, range(99)) if shard_of(name, 3) != shard_of("train", 3))]
    fleets = [Reporting(heartbeats=True, job=name) for name in names[:2]]
    for number, fleet in enumerate(fleets):
        fleet.fleet.names = [f"{'mn'[number]}{place}" for place in range(2)]
    judges = [JobJudge(shard, 3) for shard in range(3)]
    theirs = finding_of(names[0], "m0")
    other = next(judge for judge in judges if judge._shard != shard_of(names[0], 3))
    ended = other.step(JudgeInput(1.0, heard_all=True, findings=(theirs,)))
    assert ended.news == (), "another judge has this job, and knows whether it has ended"
    known = judged([judge.step for judge in judges], *fleets)
    assert known.concluded == [("m0", "straggler/gpu", names[0]), ("n0", "straggler/gpu", names[1])]
    assert [sum(ref.job in names for ref in judge.jobs) for judge in judges].count(1) == 2
    last = [judge.step(JudgeInput(fleets[0].fleet.now, heard_all=True)) for judge in judges]
    assert not any(each.news for each in last), "each has its own jobs only"


def test_a_judge_that_was_killed_is_started_again_and_judges_all(tmp_path: Path) -> None:
    leader = Leader(f"sqlite:///{tmp_path}/r.db", Fleet())
    leader.watcher._wanted = 1
    leader.train(8)
    (first,) = leader.watcher._processes
    os.kill(first.pid, signal.SIGKILL)
    leader.train(1)
    assert leader.watcher.faults["jobs"] == 1
    leader.train(ROWS)
    (second,) = leader.watcher._processes
    assert second.pid != first.pid
    assert [(found.node, found.kind) for found in leader.concluded()] == [("n0", "straggler/gpu")]
    leader.watcher.stop()
    leader.end()
    assert second._process.returncode is not None


def test_a_judge_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remediator.monitoring.judge_process.ANSWER_S", 0.2)
    process = JudgeProcess(0, 1)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(JudgeGoneError, match="no answer"):
        process.step(JudgeInput(1.0))
    assert process._process.returncode is not None


_windows = st.lists(
    st.builds(
        lambda number, exponent, steps, whole, part: StepWindow(number << exponent, 1 << exponent, steps, whole, part),
        st.integers(0, 24),
        st.sampled_from([2, 2, 2, 2, 1, 3, 11]),
        st.sampled_from([1, 4, 4, 4, 0]),
        st.sampled_from([0.5, 1.0, 1e20]),
        st.sampled_from([None, 0.25, 1e20]),
    ),
    max_size=6,
)
_moves = st.lists(st.lists(_windows, min_size=4, max_size=4), min_size=1, max_size=6)


def _messages(moves: list[list[list[StepWindow]]]) -> Iterator[tuple[float, list[Report]]]:
    """Two nodes with two ranks each report these windows, a list a rank, in each move."""
    for turn, told in enumerate(moves):
        yield (
            100.0 + 10 * turn,
            [
                report(
                    f"n{node}",
                    [
                        RankStatus("train", 1, r, 4, 1, turn, "step", 1.0, windows=tuple(told[r]))
                        for r in (2 * node, 2 * node + 1)
                    ],
                    turn + 1,
                    100.0 + 10 * turn,
                )
                for node in range(2)
            ],
        )


@given(_moves)
@settings(max_examples=300)
def test_windows_from_heartbeats_take_the_places_of_those_from_reports(moves: list[list[list[StepWindow]]]) -> None:
    by_report, by_beat = StepWindowMatrix(), StepWindowMatrix()
    for turn, (at, reports) in enumerate(_messages(moves)):
        words = [NodeRankReport(each.node, each.ranks, at, at) for each in reports]
        by_report.take(words, at)
        beats: list[RankHeartbeat] = []
        others: list[NodeRankReport] = []
        for each, word in zip(reports, words, strict=True):
            base = replace(each, ranks=tuple(replace(rank, windows=()) for rank in each.ranks))
            beat, numbers = build_heartbeat(base, each, {}), rank_numbers(each.ranks)
            assert numbers is not None
            if turn and by_beat.holds_all_of(each.node) and isinstance(beat, Heartbeat):
                beats.append(RankHeartbeat(each.node, at, numbers, beat))
            else:
                others.append(word)
        by_beat.take(others, at, read_heartbeats(beats) if beats else None)
        assert all((seat.node == "n0") == (rank < 2) for rank, seat in by_beat.seats.items())
        assert (by_beat.grid, by_beat.frontier, by_beat.seats) == (by_report.grid, by_report.frontier, by_report.seats)
        if by_report.frontier < 0:
            continue
        here = by_report.trace(by_report.oldest, by_report.frontier + 1)
        there = by_beat.trace(by_beat.oldest, by_beat.frontier + 1)
        assert here.cells.keys() == there.cells.keys()
        for name, cells in here.cells.items():
            np.testing.assert_array_equal(cells, there.cells[name], err_msg=name)


def test_ranks_that_only_send_heartbeats_keep_their_places() -> None:
    """And a rank that another node held is placed once that one is silent for too long."""
    judge, fleet = JobJudge(), Fleet(nodes=2)
    heard = fleet.say()
    bases = [report(word.node, word.ranks, 1, word.at) for word in heard]
    judge.step(JudgeInput(heard[0].at, updates=tuple(_whole(each) for each in bases)))
    (job,) = judge.jobs.values()
    last = bases
    for seq in range(2, 50):  # longer than a silent rank stays
        heard = fleet.say()
        now = [report(word.node, word.ranks, seq, word.at) for word in heard]
        beats = [_beat(*each) for each in zip(bases, now, last, strict=True)]
        judge.step(JudgeInput(heard[0].at, updates=tuple(beats)))
        last = now
        (crew,) = job._crews
        assert len(crew.timings.seats) == 16
    assert job.words["n0"].at == heard[0].at
    assert job.words["n0"].now().ranks[0].step == heard[0].ranks[0].step
    assert crew.heat.is_recent(heard[0].at), "the pace of the job is known from heartbeats"


def _whole(each: Report) -> NodeUpdate:
    packed = tuple(msgspec.msgpack.encode(rank.windows) for rank in each.ranks)
    bare = tuple(replace(rank, windows=()) for rank in each.ranks)
    return NodeUpdate(each.node, each.sent_at, each.sent_at, 30.0, bare, packed, ())


def _beat(base: Report, now: Report, last: Report) -> NodeUpdate:
    beat = build_heartbeat(base, now, newest_windows(last))
    assert beat is not None
    return NodeUpdate(now.node, now.sent_at, now.sent_at, 30.0, None, (), (beat,))


def test_windows_that_wait_are_not_lost_by_a_whole_report() -> None:
    """A report with another rank comes before the heartbeats of the older one were read; it repeats their windows."""
    judge, fleet = JobJudge(), Fleet(nodes=1)
    (word,) = fleet.say()
    base = report("n0", word.ranks, 1, word.at)
    judge.step(JudgeInput(word.at, updates=(_whole(base),)))
    (word,) = fleet.say()
    now = report("n0", word.ranks, 2, word.at)
    judge.step(JudgeInput(base.sent_at + 0.1, updates=(_beat(base, now, base),)))  # too soon to be read
    other = report("n0", [*word.ranks[:-1], replace(word.ranks[-1], pid=2)], 3, base.sent_at + 0.2)
    found = judge.step(JudgeInput(base.sent_at + 0.2, updates=(_whole(other),)))
    assert not found.faults
    found = judge.step(JudgeInput(base.sent_at + 60.0))
    assert not found.faults
    (crew,) = next(iter(judge.jobs.values()))._crews
    assert crew.timings.frontier == 1


def test_a_rank_that_another_node_held_is_placed_by_heartbeats_once_that_one_is_silent() -> None:
    judge, fleet = JobJudge(), Fleet(nodes=1)
    (word,) = fleet.say()
    first = report("n0", word.ranks[:4], 1, word.at)
    judge.step(JudgeInput(word.at, updates=(_whole(first), _whole(report("other", word.ranks[4:5], 1, word.at)))))
    (job,) = judge.jobs.values()
    (word,) = fleet.say()
    base = last = report("n0", word.ranks[:5], 2, word.at)
    judge.step(JudgeInput(word.at, updates=(_whole(base),)))
    for seq in range(3, 60):
        (word,) = fleet.say()
        now = report("n0", word.ranks[:5], seq, word.at)
        judge.step(JudgeInput(word.at, updates=(_beat(base, now, last),)))
        last = now
        (crew,) = job._crews
        assert crew.timings.seats[4].node == ("other" if seq < 20 else crew.timings.seats[4].node)
    assert {seat.node for seat in crew.timings.seats.values()} == {"n0"}
    assert crew.timings.holds_all_of("n0")
