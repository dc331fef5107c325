"""GPUs that compute wrong results: the right one is named, and nobody where the vote decides nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from remediator.monitoring.digest_vote import DigestVote, Place, locate_device, vote_on_digests
from remediator.monitoring.job_monitor import VOTE_S
from remediator.monitoring.step_windows import NodeRankReport
from tests.unit.remediator.watch.fleet import Fleet, Watched
from vocabulary.finding import Severity
from vocabulary.messages.wire import ProductDigests, RankStatus

RIGHT = ("a" * 16, "b" * 16, "c" * 16, "d" * 16)
H200, OTHER = "NVIDIA H200, torch 2.9", "NVIDIA H200, torch 2.8"
PATTERNS, RUNS = len(RIGHT), 10_000

Change = Callable[[ProductDigests], ProductDigests]


def wrong(pattern: int = 1, digest: str = "e" * 16) -> Change:
    return lambda told: replace(told, digests=(*told.digests[:pattern], digest, *told.digests[pattern + 1 :]))


def counts(contradictions: int = 0, transients: int = 0, last_good_step: int = -1) -> Change:
    return lambda told: replace(
        told, contradictions=contradictions, transients=transients, last_good_step=last_good_step
    )


def watched(fleet: Fleet, changes: Mapping[int, Change], told: Watched | None = None, **more: object) -> Watched:
    """A job whose ranks report right digests, but for `changes`; `more` is for all ranks' statuses."""
    told = told or Watched()

    def sampled(rank: RankStatus) -> RankStatus:
        usual = ProductDigests(H200, RIGHT)
        return replace(rank, digests=changes.get(rank.rank, lambda same: same)(usual), **more)

    heard = [report._replace(ranks=[sampled(rank) for rank in report.ranks]) for report in fleet.say()]
    told.look(heard, fleet.now)
    return told


def stands(fleet: Fleet, changes: Mapping[int, Change], **more: object) -> dict[str, tuple[str, Severity]]:
    found = watched(fleet, changes, **more).stands
    return {kind: (finding.component.name, finding.severity) for kind, finding in found.items()}


def test_devices_that_agree_are_no_finding() -> None:
    assert stands(Fleet(), {}) == {}


def test_the_gpu_that_differs_from_its_kind_is_named() -> None:
    told = watched(Fleet(), {11: wrong()})
    (found,) = told.stands.values()
    assert (found.kind, found.node, found.component.name) == ("sdc/minority", "n1", "GPU-11")
    assert (found.severity, found.evidence["ranks"]) == (Severity.ERROR, "11")
    assert found.summary == "the GPU of rank 11 computes other products in train than those of its kind"


def test_two_faulty_gpus_are_both_named() -> None:
    assert set(stands(Fleet(), {3: wrong(), 11: wrong(digest="f" * 16)})) == {"sdc/minority n0", "sdc/minority n1"}


@pytest.mark.parametrize(("nodes", "per_node"), [(1, 2), (2, 1)])
def test_of_two_that_differ_nobody_is_named_alone(nodes: int, per_node: int) -> None:
    told = watched(Fleet(nodes, per_node), {1: wrong()})
    (found,) = told.stands.values()
    assert (found.kind, found.severity, found.component.name) == ("sdc/undecided", Severity.WARNING, "train.1")
    assert found.evidence["ranks"] == "0, 1"
    assert found.evidence["suspects"] == f"n0 GPU-0, n{nodes - 1} GPU-1"


def test_a_job_of_one_rank_has_no_vote_but_may_contradict_itself() -> None:
    assert stands(Fleet(1, 1), {0: wrong()}) == {}
    assert stands(Fleet(1, 1), {0: counts(1)}) == {"sdc/contradiction n0": ("GPU-0", Severity.ERROR)}


@pytest.mark.parametrize(
    ("contradictions", "transients", "severity"),
    [(1, 0, Severity.ERROR), (0, 2, Severity.ERROR), (0, 1, Severity.WARNING)],
)
def test_a_device_that_contradicts_itself_is_named_alone(
    contradictions: int, transients: int, severity: Severity
) -> None:
    told = watched(Fleet(), {5: counts(contradictions, transients, 118)})
    (found,) = told.stands.values()
    assert (found.kind, found.component.name, found.severity) == ("sdc/contradiction", "GPU-5", severity)
    assert found.evidence["last_good_step"] == 118


def test_other_software_votes_within_its_kind() -> None:
    other = {rank: lambda _: ProductDigests(OTHER, ("f" * 16,) * PATTERNS) for rank in range(8)}
    assert stands(Fleet(), other) == {}
    fourth = {**other, 3: lambda _: ProductDigests(OTHER, RIGHT)}
    assert stands(Fleet(), fourth) == {"sdc/minority n0": ("GPU-3", Severity.ERROR)}


def test_devices_of_two_nodes_that_agree_on_another_result_are_not_named() -> None:
    assert set(stands(Fleet(4), {3: wrong(), 11: wrong()})) == {"sdc/undecided n0"}


def test_a_whole_node_that_differs_is_named_as_a_host() -> None:
    (found,) = watched(Fleet(4), {rank: wrong() for rank in range(8)}).stands.values()
    assert (found.kind, found.node, str(found.component)) == ("sdc/minority", "n0", "host")
    assert found.evidence["ranks"] == "0, 1, 2, 3, 4, 5, 6, 7"


def test_a_host_that_ruins_all_its_gpus_does_not_outvote_others() -> None:
    fleet = Fleet(2, 4)
    liars: dict[int, Change] = {rank: wrong() for rank in range(4)}
    missing: dict[int, Change] = {rank: lambda _: ProductDigests(H200) for rank in (5, 6, 7)}
    (found,) = watched(fleet, {**liars, **missing}).stands.values()
    assert (found.kind, found.evidence["ranks"]) == ("sdc/undecided", "0, 1, 2, 3, 4")


def test_a_device_that_another_vote_names_is_no_reason_to_suspect_its_peer() -> None:
    bad = ProductDigests(H200, ("e" * 16, "e" * 16))
    digests = [bad, ProductDigests(H200, RIGHT[:2]), *[ProductDigests(H200, ("", RIGHT[1]))] * 2]
    vote = vote_on_digests({(Place("n0", f"GPU-{rank}"), rank): each for rank, each in enumerate(digests)})
    assert vote == DigestVote({Place("n0", "GPU-0"): [0]}, {})


def test_ranks_without_digests_have_no_vote() -> None:
    empty: dict[int, Change] = {rank: lambda _: ProductDigests(H200) for rank in range(15)}
    assert stands(Fleet(), empty) == {}


def test_a_dead_rank_has_no_vote() -> None:
    fleet, told = Fleet(), Watched()
    sampled = [[replace(rank, digests=ProductDigests(H200, RIGHT)) for rank in each.ranks] for each in fleet.say()]
    sampled[1][3] = replace(sampled[1][3], alive=False, digests=wrong()(ProductDigests(H200, RIGHT)))
    told.look(
        [NodeRankReport(*each, fleet.now, fleet.now) for each in zip(fleet.names, sampled, strict=True)], fleet.now
    )
    assert told.stands == {}


def test_several_ranks_of_a_gpu_have_one_vote() -> None:
    assert set(stands(Fleet(1, 4), {0: wrong(), 1: wrong(), 2: wrong()}, gpu="GPU-0")) == {"sdc/undecided n0"}


def test_a_rank_without_a_known_gpu_is_its_own_device() -> None:
    assert stands(Fleet(1, 4), {2: wrong()}, gpu="") == {"sdc/minority n0": ("", Severity.ERROR)}


def test_a_named_gpu_stays_named_when_its_rank_starts_again_and_agrees() -> None:
    fleet = Fleet()
    told = watched(fleet, {11: wrong()})
    fleet.row += 2
    watched(fleet, {}, told, pid=2)
    assert set(told.stands) == {"sdc/minority n1"}


def test_an_open_vote_ends_when_its_devices_agree() -> None:
    fleet = Fleet(1, 2)
    told = watched(fleet, {1: wrong()})
    assert set(told.stands) == {"sdc/undecided n0"}
    fleet.row += 2
    watched(fleet, {}, told, pid=2)
    assert told.stands == {}


def test_the_vote_is_repeated_for_new_digests_and_after_a_while() -> None:
    fleet, told = Fleet(), Watched()
    for _ in range(int(VOTE_S / 4) + 400):
        watched(fleet, {11: wrong()}, told)
    assert 2 <= len(told.told) <= 4, "an open finding stays fresh"
    watched(fleet, {11: wrong(), 3: counts(1)}, told)
    assert "sdc/contradiction n0" in told.stands


def test_a_silent_node_has_no_vote() -> None:
    fleet, told = Fleet(2, 1), Watched()
    heard = [
        NodeRankReport(
            name, [replace(fleet.rank(number), digests=ProductDigests(H200, (str(number) * 16,)))], fleet.now
        )
        for number, name in enumerate(fleet.names)
    ]
    told.look(heard, fleet.now, silent=("n1",))
    assert told.stands == {}


class RandomJob:
    """A job with random devices, software and faults. `votes` are its digests; `faulty` those that differ, by kind."""

    def __init__(self, draw: random.Random) -> None:
        self.votes: dict[tuple[Place, int], ProductDigests] = {}
        self.kind: dict[Place, str] = {}
        self.faulty: set[Place] = set()
        self.alike = draw.random() < 0.3  # faults of all devices look the same, as those of liars
        share = draw.choice([0.0, 0.1, 0.3, 0.6])
        for node in range(draw.randint(1, 4)):
            platform = draw.choice([H200, H200, OTHER])
            for gpu in range(draw.randint(1, 4)):
                place = locate_device(f"n{node}", f"{node}.{gpu}" if draw.random() < 0.9 else "", len(self.votes))
                self.kind[place] = platform
                digests = [digest if draw.random() < 0.9 else "" for digest in RIGHT]
                if draw.random() < share:
                    pattern = draw.randrange(PATTERNS)
                    digests[pattern] = "e" * 16 if self.alike else f"{draw.getrandbits(64):016x}"
                    self.faulty.add(place)
                self.votes[place, len(self.votes)] = ProductDigests(platform, tuple(digests))

    def voters(self, platform: str, pattern: int) -> dict[Place, str]:
        return {
            place: told.digests[pattern]
            for (place, _), told in self.votes.items()
            if self.kind[place] == platform and told.digests[pattern]
        }

    @property
    def disputes(self) -> list[dict[Place, str]]:
        each = [self.voters(platform, pattern) for platform in (H200, OTHER) for pattern in range(PATTERNS)]
        return [voters for voters in each if len({*voters.values()}) > 1]


def check_vote(job: RandomJob, vote: DigestVote) -> None:
    named = {*vote.outvoted}
    mass = any(3 * sum(d == "e" * 16 for d in voters.values()) >= 2 * len(voters) for voters in job.disputes)
    assert mass or named <= job.faulty, "an innocent device is named only where two thirds lie alike"
    assert bool(job.disputes) == bool(named or vote.undecided), "no difference is overlooked"
    assert named.isdisjoint(vote.undecided)
    assert len(vote.undecided) != 1, "nobody is suspected alone"
    for voters in job.disputes:
        assert {*voters} & (named | {*vote.undecided})
        odd = [place for place in voters if place in job.faulty and voters[place] not in RIGHT]
        others = {place.node for place in voters if place not in odd}
        if len(odd) == 1 and len(voters) >= 3 and (len(others) > 1 or odd[0].node in others):
            assert odd[0] in named, "a single faulty device among three is found"


def test_no_random_vote_names_an_innocent_device() -> None:
    disputed = found = 0
    for seed in range(RUNS):
        job = RandomJob(random.Random(seed))  # noqa: S311 - test data
        vote = vote_on_digests(job.votes)
        check_vote(job, vote)
        disputed += bool(job.disputes)
        found += bool(vote.outvoted)
    assert (disputed > RUNS / 3, found > RUNS / 8) == (True, True), "the runs hold what they test"
