"""What is added up node by node when reports come in is what a walk over every rank finds."""

from __future__ import annotations

from collections import Counter
from statistics import median_low

from hypothesis import given, settings
from hypothesis import strategies as st

from remediator.api.job_views import list_job_views
from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.job_share import UNTOLD
from remediator.model.journal_records import JobRef, NodeRecord
from remediator.web import rank_heatmap as web_ranks
from vocabulary.health import Health
from vocabulary.messages.wire import RankStatus, Report

AT = 1_700_000_000.0
_TIMES = st.sampled_from((0.0, 0.5, 1.0, 1.25, 3.0))
_RANKS = st.builds(
    RankStatus,
    job=st.sampled_from(("a", "b/1")),
    attempt=st.integers(0, 2),
    rank=st.integers(0, 9),
    world=st.integers(0, 16),
    pid=st.just(1),
    step=st.integers(-1, 9),
    phase=st.sampled_from(("", "forward", "step")),
    at=st.floats(AT, AT + 9),
    alive=st.booleans(),
    step_seconds=_TIMES,
    step_median=_TIMES,
    sections_median=st.dictionaries(st.sampled_from(("communication", "data")), _TIMES),
    pipeline_stage=st.integers(-1, 2),
)
_FLEETS = st.lists(st.lists(_RANKS, max_size=6), max_size=5)


def heard(fleet: list[list[RankStatus]]) -> ReportRegistry:
    report_registry = ReportRegistry()
    for n, ranks in enumerate(fleet):
        said = Report(
            version=1,
            node=f"n{n}",
            boot_id="b",
            agent="a",
            seq=1,
            sent_at=AT,
            ttl_s=30.0,
            health=Health.HEALTHY,
            ranks=tuple(ranks),
        )
        report_registry.take(said, AT)
    return report_registry


def newest(fleet: list[list[RankStatus]]) -> list[JobRef]:
    attempts: dict[str, int] = {}
    for rank in (rank for ranks in fleet for rank in ranks if rank.alive):
        attempts[rank.job] = max(rank.attempt, attempts.get(rank.job, 0))
    return [JobRef(job, attempts[job]) for job in sorted(attempts)]


@given(_FLEETS)
@settings(max_examples=50)
def test_a_jobs_figures_are_those_of_all_its_living_ranks(fleet: list[list[RankStatus]]) -> None:
    report_registry = heard(fleet)
    records = {entry.node: NodeRecord(node=entry.node, jobs=entry.jobs) for entry in report_registry.entries()}
    found = list_job_views(
        StateSnapshot(nodes=records, findings={}, incidents={}, actions={}, holds={}), report_registry
    )
    assert [JobRef(view.job, view.attempt) for view in found] == newest(fleet)
    for view in found:
        living = [
            (node, rank)
            for node, ranks in enumerate(fleet)
            for rank in ranks
            if rank.alive and (rank.job, rank.attempt) == (view.job, view.attempt)
        ]
        phases = Counter(rank.phase for _, rank in living)
        steps = [seconds for _, rank in living if (seconds := rank.step_median or rank.step_seconds) > 0]
        assert view.nodes == tuple(sorted({f"n{node}" for node, _ in living}))
        assert view.ranks_told == len(living)
        assert view.world == max(rank.world for _, rank in living)
        assert view.step == max(rank.step for _, rank in living)
        assert view.at == max(rank.at for _, rank in living)
        assert view.step_s == (median_low(steps) if steps else 0.0)
        assert view.phase == min(phases, key=lambda phase: (-phases[phase], phase))


@given(_FLEETS)
@settings(max_examples=50)
def test_a_jobs_picture_is_that_of_all_its_ranks(fleet: list[list[RankStatus]]) -> None:
    report_registry = heard(fleet)
    for ref in newest(fleet):
        crew = [(e.node, share) for e in report_registry.entries() for share in e.shares if share.ref == ref]
        told = [
            entry.ranks[place]
            for entry in report_registry.entries()
            for share in entry.shares
            if share.ref == ref
            for place in share.places
        ]
        assert told == [
            rank
            for ranks in fleet
            if any(each.alive and (each.job, each.attempt) == (ref.job, ref.attempt) for each in ranks)
            for rank in ranks
            if (rank.job, rank.attempt) == (ref.job, ref.attempt)
        ]
        drawn = web_ranks.build_rank_picture(crew)
        assert [stage.number for stage in drawn.stages] == sorted({rank.pipeline_stage for rank in told})
        for stage in drawn.stages:
            here = [rank for rank in told if rank.pipeline_stage == stage.number]
            own = sorted(seconds for rank in here if (seconds := own_s(rank)) != UNTOLD)
            assert (stage.ranks, stage.dead) == (len(here), sum(not rank.alive for rank in here))
            assert stage.own == (own[(len(own) - 1) // 2] if own else None)
            assert stage.slowest == (own[-1] if own else None)


def own_s(rank: RankStatus) -> float:
    step = rank.step_median or rank.step_seconds
    if not rank.alive or step <= 0:
        return UNTOLD
    return max(step - rank.sections_median.get("communication", 0.0), 0.0)
