"""A job that becomes slower when one of its GPUs is held down by heat: that GPU is named, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from remediator.detection.stragglers.heat_slowdown import PaceSample, find_heat_onset
from remediator.monitoring.heat_watch import HeatWatch, index_hot_gpus
from remediator.monitoring.step_windows import NodeRankReport
from tests.unit.remediator.watch.fleet import ROW_S, Fleet, Watched, own
from vocabulary.finding import Finding, Severity

CALM_ROWS = 40
RAISED_S = 40.0  # after the heat begins: 30 s until the check raises it, and a report


def without_times(word: NodeRankReport, step_s: float | None = None) -> NodeRankReport:
    """The report of a program that tells its steps and not what it does in them."""
    gone = {"forward_s": None, "backward_s": None, "communication_s": None} | ({"step_s": step_s} if step_s else {})
    ranks = [replace(rank, windows=tuple(replace(each, **gone) for each in rank.windows)) for rank in word.ranks]
    return word._replace(ranks=ranks)


class Job:
    """A job that trains calmly for a while. From then on `slower` is by how much all steps, and `own` rank 0, take longer."""

    def __init__(
        self, nodes: int = 2, per_node: int = 1, *, timed: bool = True, findings: Sequence[Finding] = ()
    ) -> None:
        self.fleet, self.watch = Fleet(nodes, per_node), Watched(findings)
        self.timed = timed
        self.noise = np.random.default_rng(5)
        self.run(CALM_ROWS)
        self.begun = self.fleet.now

    def run(
        self, rows: int, slower: float = 0.0, own_slower: Sequence[float] = (), watch: Watched | None = None
    ) -> None:
        def takes(rank: int, _row: int) -> float:
            return 1.0 + (own_slower[rank] if rank < len(own_slower) else 0.0)

        for _ in range(rows):
            heard = self.fleet.say(takes, 1.5 * (1 + slower) * float(np.exp(0.01 * self.noise.standard_normal())))
            heard = heard if self.timed else [without_times(word) for word in heard]
            (watch or self.watch).look(heard, self.fleet.now)

    def heat(self, node: str = "n0", gpu: int = 0, kind: str = "throttle/hw_thermal") -> Finding:
        """The node's finding, raised now."""
        found = own(node, kind, gpu=gpu)
        found = replace(found, first_seen=self.fleet.now, last_seen=self.fleet.now)
        self.watch.findings[found.id] = found
        return found

    def grow_hot(self, slower: float, own_slower: Sequence[float] = (), rows: int = 60) -> None:
        """Heat begins, the job slows down with it, and the node raises it after a while."""
        self.run(round(RAISED_S / ROW_S), slower, own_slower)
        self.heat()
        self.run(rows, slower, own_slower)

    @property
    def suspects(self) -> list[Finding]:
        return [each for each in self.watch.stands.values() if each.severity is not Severity.INFO]


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_a_job_of_few_ranks_names_its_hot_gpu_within_five_minutes(nodes: int, *, timed: bool) -> None:
    job = Job(nodes, timed=timed)
    job.grow_hot(0.25, [0.25])
    (found,) = job.suspects
    assert (found.kind, found.node, found.component.name) == ("straggler/gpu", "n0", "GPU-0")
    assert found.evidence["slowdown"] == pytest.approx(0.25, abs=0.03)
    assert (found.evidence["confirmed"], found.evidence["level"]) == ("yes", "now" if timed else "watch")
    assert "heat" in found.summary
    first = next(each for each in job.watch.told if each.kind == "straggler/gpu")
    assert first.last_seen - job.begun <= 300


def test_a_job_with_peers_is_named_as_soon() -> None:
    job = Job(4, per_node=8)
    job.grow_hot(0.25, [0.25])
    (found,) = job.suspects
    assert (found.node, found.component.name) == ("n0", "GPU-0")
    assert job.watch.told[0].last_seen - job.begun <= 300


def test_it_leaves_only_when_staying_costs_more() -> None:
    """25 % lost of an expected ten minutes and more: break-even is fifty minutes from when it began."""
    job = Job(2)
    job.grow_hot(0.25, [0.25], rows=300)
    (found,) = job.suspects
    assert found.severity is Severity.WARNING
    assert float(found.evidence["staying_costs_s"]) < float(found.evidence["leaving_costs_s"])
    job.run(round(3000 / ROW_S), 0.25, [0.25])
    (found,) = job.suspects
    assert found.severity is Severity.ERROR
    assert float(found.evidence["staying_costs_s"]) > float(found.evidence["leaving_costs_s"])


def test_step_time_alone_never_makes_it_leave() -> None:
    job = Job(2, timed=False)
    job.grow_hot(0.25, rows=round(3600 / ROW_S))
    (found,) = job.suspects
    assert (found.severity, found.evidence["level"]) == (Severity.WARNING, "watch")
    assert float(found.evidence["staying_costs_s"]) > float(found.evidence["leaving_costs_s"])


def test_a_slowdown_of_a_tenth_is_watched_and_costs_too_little_to_leave() -> None:
    job = Job(2)
    job.grow_hot(0.08, [0.08], rows=600)
    (found,) = job.suspects
    assert (found.severity, found.evidence["level"]) == (Severity.WARNING, "watch")


@pytest.mark.parametrize("others", [("n0", 1), ("n1", 1)], ids=["a second GPU of the node", "a GPU of another node"])
def test_two_hot_gpus_name_none(others: tuple[str, int]) -> None:
    job = Job(2)
    job.run(10, 0.25, [0.25])
    job.heat()
    job.run(1, 0.25, [0.25])
    job.heat(*others)
    job.run(60, 0.25, [0.25])
    assert not job.suspects


def test_a_hot_rack_names_none() -> None:
    job = Job(4)
    job.run(10, 0.25, [0.25] * 4)
    for number in range(4):
        job.heat(f"n{number}", number)
    job.run(60, 0.25, [0.25] * 4)
    assert not job.suspects


def test_a_hot_gpu_in_a_job_that_is_not_slower_is_not_accused() -> None:
    job = Job(2)
    job.grow_hot(0.0)
    assert not job.watch.told


@pytest.mark.parametrize("timed", [True, False])
def test_a_job_that_was_slow_long_before_or_becomes_slow_long_after_is_not_its_fault(*, timed: bool) -> None:
    before = Job(2, timed=timed)
    before.run(80, 0.25, [0.1, 0.1])
    before.grow_hot(0.25, [0.1, 0.1])
    assert not before.suspects
    after = Job(2, timed=timed)
    after.grow_hot(0.0, rows=120)
    after.run(60, 0.25, [0.1, 0.1])
    assert not after.suspects


def test_a_job_whose_ranks_all_compute_longer_is_not_slowed_by_the_hot_one() -> None:
    job = Job(3)
    job.grow_hot(0.25, [0.25, 0.25, 0.25])
    assert not job.suspects


def test_a_hot_gpu_that_computes_as_fast_as_before_is_not_accused_of_a_slow_network() -> None:
    job = Job(2)
    job.grow_hot(0.25)
    assert not job.suspects


@pytest.mark.parametrize("kind", ["power/above_limit", "throttle/hw_power_brake", "temperature/core", "clocks/low"])
def test_other_limits_are_not_heat_that_holds_it_down(kind: str) -> None:
    job = Job(2, timed=False)
    job.run(10, 0.25)
    job.heat(kind=kind)
    job.run(60, 0.25)
    assert not job.suspects


def test_the_gpu_of_another_job_on_the_node_is_not_accused() -> None:
    job = Job(2)
    job.run(10, 0.25, [0.25])
    job.heat(gpu=7)
    job.run(60, 0.25, [0.25])
    assert not job.suspects


def test_it_is_taken_back_when_the_job_is_fast_again_or_the_heat_ends() -> None:
    job = Job(2)
    job.grow_hot(0.25, [0.25])
    assert job.suspects
    job.run(45)
    assert not job.suspects
    cooled = Job(2)
    cooled.grow_hot(0.25, [0.25])
    (heat,) = [each for each in cooled.watch.findings.values() if each.check == "throttle"]
    cooled.watch.findings[heat.id] = heat.cleared(cooled.fleet.now, "a reading")
    cooled.run(2, 0.25, [0.25])
    assert not cooled.suspects


def test_another_leader_keeps_it_although_it_has_not_seen_the_job_before_the_heat() -> None:
    job = Job(2)
    job.grow_hot(0.25, [0.25])
    (found,) = job.suspects
    after = Watched(job.watch.findings.values())
    job.run(60, 0.25, [0.25], watch=after)
    (kept,) = after.stands.values()
    assert (kept.id, kept.evidence["level"]) == (found.id, "now")
    job.run(45, watch=after)
    assert not after.stands


def test_a_node_that_invents_slow_steps_moves_neither_the_pace_nor_its_fellows() -> None:
    """Its own heat is the node's word against itself; the steps are what most nodes say."""
    job = Job(4, timed=False)
    for row in range(70):
        heard = job.fleet.say()
        heard = [without_times(word, 9.0 if word.node == "n3" else None) for word in heard]
        if row == 10:
            job.heat()
        job.watch.look(heard, job.fleet.now)
    assert not job.suspects


def test_heat_of_a_cleared_finding_or_of_a_whole_host_is_not_indexed() -> None:
    cleared = own("n0", "throttle/hw_thermal", gpu=1).cleared(1.0, "a reading")
    assert index_hot_gpus([cleared, own("n1", "throttle/hw_thermal")]) == {}
    assert not HeatWatch().is_recent(0.0)


def onset_found(*spans: tuple[float, float, float], hot_since: float = 1000.0) -> bool:
    """Of step times by (from, to, seconds), one every five seconds."""
    samples = [PaceSample(at, step_s, 0) for begin, end, step_s in spans for at in np.arange(begin, end, 5.0)]
    return find_heat_onset(samples, hot_since) is not None


def test_the_onset_is_a_rise_from_just_before_the_heat_to_just_after_it() -> None:
    assert onset_found((600, 900, 1.0), (1000, 1100, 1.1))
    assert not onset_found((600, 900, 1.0), (1000, 1100, 1.04))
    assert not onset_found((600, 900, 1.0), (1000, 1040, 1.1)), "too early to tell"
    assert not onset_found((880, 900, 1.0), (1000, 1100, 1.1)), "too little from before"
    assert not onset_found((100, 600, 1.0), (600, 900, 1.1), (1000, 1100, 1.1)), "slow before"
    assert not onset_found((600, 900, 1.0), (1000, 1310, 1.0), (1310, 2000, 1.1)), "slow only later"


def test_a_rise_within_the_noise_is_none() -> None:
    draw = np.random.default_rng(1)
    before = [PaceSample(at, 1.0 + 0.4 * float(draw.random()), 0) for at in np.arange(600, 900, 25.0)]
    after = [PaceSample(at, 1.1 + 0.4 * float(draw.random()), 0) for at in np.arange(1000, 1100, 25.0)]
    assert find_heat_onset([*before, *after], 1000.0) is None
