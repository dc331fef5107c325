"""The watch with a real engine on a real database: what it finds is written, and another leader goes on from there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from remediator.engine.decision_engine import DecisionEngine, StateSnapshot
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.journal_records import JobRef
from remediator.model.pipeline_inputs import FindingsReported
from remediator.monitoring.analysis_passes import PASS_ROWS
from remediator.monitoring.ended_jobs import UNTESTED_S, findings_of_ended_jobs
from remediator.monitoring.job_monitor import JobMonitor, KnownFindings
from remediator.monitoring.job_watcher import GPU_COUNTS_S, HEARD_ALL_S, JobWatcher
from remediator.monitoring.lemon_monitor import LemonMonitor
from remediator.monitoring.step_windows import NodeRankReport
from remediator.store.journal import Journal
from remediator.store.occurrence_queries import OccurrenceQueries
from tests.timelines.timeline import settings
from tests.unit.remediator.watch.fleet import Fleet, own
from tests.unit.remediator.watch.test_slow_jobs import slow
from vocabulary.clock import ManualClock, SystemClock
from vocabulary.finding import Finding, Severity
from vocabulary.health import Health
from vocabulary.messages.wire import Gpu, RankStatus, Report

ROWS = 3 * PASS_ROWS + 8
LIAR = "liar"


class Leader:
    """One term: an engine, a report registry, a watch; the clock is the fleet's."""

    def __init__(self, url: str, fleet: Fleet) -> None:
        self.fleet, self.clock, self.report_registry = fleet, ManualClock(fleet.now), ReportRegistry()
        self.engine = DecisionEngine(Journal(url), settings(), SystemClock(), lambda _snapshot: None)
        self.engine.start()
        self._seq = 0
        self.gpus: dict[str, int] = {}
        self.mixed: set[str] = set()  # nodes whose first GPU is of another product
        for name in (*fleet.names, LIAR):
            known = FindingsReported(at=time.time(), node=name, boot_id="b", active=())
            self.engine.submit_durably(known).result(60)
        past = LemonMonitor(OccurrenceQueries(self.engine._journal.engine), float("inf"))
        self.watcher = JobWatcher(self.engine, self.report_registry, self.clock, past)

    def hear(self, ranks: dict[str, list[RankStatus]]) -> None:
        self._seq += 1
        for name in dict.fromkeys((*self.fleet.names, *ranks)):
            now = self.clock.wall()
            report = Report(
                version=1, node=name, boot_id="b", agent=f"a{id(self)}", seq=self._seq, sent_at=now, ttl_s=30.0,
                health=Health.HEALTHY, ranks=tuple(ranks.get(name, ())),
                gpus=tuple(
                    Gpu(i, f"{name}-{i}", f"0000:1{i}:00.0", "T4" if i == 0 and name in self.mixed else "H100")
                    for i in range(self.gpus.get(name, 0))
                ),
            )  # fmt: skip
            self.report_registry.take(report, now)
        self.watcher.poll_once()

    def train(self, rows: int, lies: Sequence[RankStatus] = ()) -> None:
        for _ in range(rows):
            heard = self.fleet.say(slow(5))
            self.clock.advance(self.fleet.now - self.clock.wall())
            windows = heard[0].ranks[0].windows
            said = {LIAR: [replace(lie, windows=windows) for lie in lies]} if lies else {}
            self.hear({word.node: [*word.ranks] for word in heard} | said)

    def concluded(self) -> list[Finding]:
        return [f for f in self.engine.snapshot.findings.values() if f.active and f.origin.startswith("centre:")]

    def end(self) -> None:
        self.engine.stop()
        self.engine._journal.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/r.db"


def test_what_one_leader_found_the_next_neither_doubles_nor_loses(url: str) -> None:
    fleet = Fleet()
    first = Leader(url, fleet)
    first.train(ROWS)
    (found,) = first.concluded()
    incidents = set(first.engine.snapshot.incidents)
    first.end()
    second = Leader(url, fleet)
    second.train(8)
    assert second.concluded() == [found]
    second.train(ROWS)
    (still,) = second.concluded()
    assert (still.id, still.first_seen, still.count) == (found.id, found.first_seen, found.count)
    assert set(second.engine.snapshot.incidents) == incidents
    second.hear({})
    assert second.concluded() == [still], "its job has gone, and it waits for its test"
    second.end()


NUMBERS = ("attempt", "step", "pipeline_stage", "tensor_group", "data_group", "expert_group", "pid")


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_whatever_numbers_a_node_tells_of_jobs_of_its_own_the_others_are_judged(url: str, number: int) -> None:
    leader = Leader(url, Fleet())
    honest = RankStatus(job="", attempt=0, rank=0, world=1, pid=1, step=0, phase="step", at=0.0)
    lies = [replace(honest, job=name, **{name: number}) for name in NUMBERS]
    leader.train(ROWS, [*lies, replace(honest, job="both", rank=abs(number), world=abs(number) + 1)])
    assert [(found.node, found.kind) for found in leader.concluded()] == [("n0", "straggler/gpu")]
    assert not leader.watcher.faults.total()
    assert {ref.job for ref in leader.watcher.judge.jobs} == {"train", *NUMBERS} - {"attempt", "step"}
    leader.end()


class Past(LemonMonitor):
    """Says `says` at every look, or fails."""

    says: tuple[Finding, ...] = ()
    times = 0  # written

    def __call__(self, snapshot: StateSnapshot, now: float) -> tuple[Finding, ...]:
        del snapshot, now
        if not self.says:
            raise RuntimeError
        return self.says

    def written(self, now: float) -> None:
        del now
        self.times += 1


class Broken(JobMonitor):
    def take(self, heard: Collection[NodeRankReport]) -> None:
        super().take(heard)
        raise ArithmeticError

    def judgements(
        self, known: KnownFindings, has_reported: Callable[[str], bool], now: float
    ) -> list[Callable[[], tuple[Finding, ...]]]:
        del known, has_reported, now
        return [lambda: self.no_such_thing]  # type: ignore[attr-defined]  # the bug


def test_a_fault_in_judging_one_job_or_the_past_is_counted_and_hides_no_other(url: str) -> None:
    leader = Leader(url, Fleet())
    theirs = RankStatus(job="theirs", attempt=0, rank=0, world=1, pid=1, step=0, phase="step", at=0.0)
    leader.watcher.judge.jobs[JobRef("theirs", 0)] = Broken(JobRef("theirs", 0))
    leader.watcher._past = Past(OccurrenceQueries(leader.engine._journal.engine), 0.0)
    leader.train(ROWS, [theirs])
    assert [(found.node, found.kind) for found in leader.concluded()] == [("n0", "straggler/gpu")]
    assert leader.watcher.faults == {"jobs": 2 * ROWS, "ended": 0, "gpu_counts": 0, "past": ROWS}
    leader.end()


def count_gpus(leader: Leader, **counts: int) -> list[str]:
    """Every node of the fleet says how many it has, a minute later; whom the leader then finds short."""
    leader.clock.advance(GPU_COUNTS_S)
    leader.gpus = counts
    leader.hear({})
    assert {f.kind for f in leader.concluded()} <= {"gpu_count/below_siblings"}
    return [f.node for f in leader.concluded()]


def test_a_node_with_fewer_gpus_than_its_siblings_is_told_until_it_has_as_many(url: str) -> None:
    leader = Leader(url, Fleet(nodes=6))
    full = dict.fromkeys(leader.fleet.names, 8)
    assert count_gpus(leader, **full | {"n2": 7}) == ["n2"]
    assert count_gpus(leader, **{name: 8 for name in full if name != "n2"}) == ["n2"], "without GPUs it proves nothing"
    assert count_gpus(leader, **full) == []
    leader.end()


def test_a_node_that_is_silent_or_mixed_or_whose_driver_hangs_is_not_compared(url: str) -> None:
    leader = Leader(url, Fleet(nodes=6))
    full = dict.fromkeys(leader.fleet.names, 8)
    assert count_gpus(leader, **full) == []
    leader.gpus = full | {LIAR: 7}
    leader.hear({LIAR: []})  # before the next comparison, and never again
    assert count_gpus(leader, **full) == []
    leader.mixed = {"n3"}
    assert count_gpus(leader, **full | {"n3": 7}) == []
    leader.engine.submit_durably(hung("n4")).result(60)
    assert count_gpus(leader, **full | {"n4": 7}) == []
    leader.end()


def test_a_new_leader_goes_on_saying_it_until_all_nodes_had_time_to_speak(url: str) -> None:
    first = Leader(url, Fleet(nodes=6))
    assert count_gpus(first, **dict.fromkeys(first.fleet.names, 8) | {"n2": 7}) == ["n2"]
    first.end()
    second = Leader(url, Fleet(nodes=3))  # the others have not spoken to it yet
    assert count_gpus(second, n0=8, n1=8, n2=7) == ["n2"]
    second.clock.advance(HEARD_ALL_S)
    assert count_gpus(second, n0=8, n1=8, n2=7) == [], "they never will, and two siblings prove nothing"
    second.end()


def hung(node: str) -> FindingsReported:
    return FindingsReported(at=time.time(), node=node, boot_id="b", active=(own(node, "nvml/hang"),))


def test_what_was_said_of_the_past_and_could_not_be_handed_in_is_not_taken_for_written(url: str) -> None:
    leader = Leader(url, Fleet())
    leader.watcher._past = past = Past(OccurrenceQueries(leader.engine._journal.engine), 0.0)
    past.says = (finding(Severity.ERROR, "", "lemon"),)
    leader.watcher.poll_once()
    assert past.times == 1
    leader.end()
    leader.engine._queue.maxsize = 1
    leader.engine._queue.put_nowait(None)
    leader.watcher.poll_once()
    assert past.times == 1


def finding(severity: Severity, level: str, check: str = "straggler") -> Finding:
    found = own("n0", f"{check}/gpu", severity=severity)
    return replace(found, evidence={"level": level}, last_seen=0.0)


def test_a_weak_suspicion_goes_with_its_job_and_a_strong_one_waits_a_day_for_its_test() -> None:
    weak, strong = finding(Severity.WARNING, "watch"), finding(Severity.WARNING, "now")
    grave, lemon = finding(Severity.ERROR, "watch"), finding(Severity.ERROR, "", "lemon")
    assert [f.cleared_by for f in findings_of_ended_jobs([weak, strong, grave, lemon], 10.0)] == ["the job has ended"]
    late = findings_of_ended_jobs([strong, grave, lemon], UNTESTED_S + 1)
    assert [f.id for f in late] == [strong.id, grave.id]
