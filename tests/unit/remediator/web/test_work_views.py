"""What the pages about incidents and jobs make of what they are told, without a page: moments, squares, whom it hits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.job_share import JobShare, build_job_shares
from remediator.model.journal_records import Incident, JobRef, NodeRecord
from remediator.model.plan_steps import Step, StepRun, Verb
from remediator.model.views import ActionView, DecisionView, IncidentView, MissingOutcome, StatusView
from remediator.web import rank_heatmap
from remediator.web.action_grouping import group_actions
from remediator.web.blast_radius import compute_blast_radius, count_job_nodes
from remediator.web.incident_progress import step_text
from remediator.web.incident_timeline import build_incident_timeline, format_latency
from vocabulary.health import Health
from vocabulary.messages.wire import RankStatus, Report, StepWindow

AT = 1_700_000_000.0


def status(number: int, own: float = 1.0, stage: int = -1, *, alive: bool = True, **more: object) -> RankStatus:
    told: dict[str, object] = {"step_median": 2.0, "sections_median": {"communication": 2.0 - own}} | more
    return RankStatus("a", 0, number, 8, 1, 5, "step", AT, alive=alive, pipeline_stage=stage, **told)  # type: ignore[arg-type]  # fields


def crew(told: list[RankStatus], on_each: int) -> list[tuple[str, JobShare]]:
    """The ranks on so many nodes as it takes; a node on which none lives has no share."""
    groups = [told[n : n + on_each] for n in range(0, len(told), on_each)]
    return [(f"n{n:05}", share) for n, group in enumerate(groups) for share in build_job_shares(group)]


def test_an_incident_reads_in_the_order_in_which_things_happened() -> None:
    view = IncidentView(
        id="i",
        node="n1",
        state="closed",
        title="t",
        opened_at=AT + 0.05,
        closed_at=AT + 90.0,
        outcome="well again",
        decisions=(DecisionView("d", AT + 0.06, "act", "xid-79", "it fell off", "p"),),
        actions=(ActionView("a", "drain", "n1", "succeeded", AT + 0.06, AT + 60, finished_at=AT + 3.0, detail="done"),),
        acknowledged_by="ann",
        acknowledged_at=AT + 1.0,  # while the action was under way
    )
    moments = build_incident_timeline(view)
    assert [m.kind for m in moments] == ["incident", "decision", "action", "person", "action", "incident"]
    assert [format_latency(m.since_before) for m in moments] == ["–", "10 ms", "<1 ms", "940 ms", "2.0 s", "1 min 27 s"]
    assert format_latency(moments[-1].since_first) == "1 min 29 s"
    assert moments[4].text == "drain succeeded after 2.9 s: done"


def aborted(node: str, at: float, ended: float | None, **more: object) -> ActionView:
    return ActionView(f"a-{node}", "abort", node, "succeeded", at, at + 60, finished_at=ended, **more)  # type: ignore[arg-type]  # fields


def test_what_happens_on_many_nodes_at_once_is_one_moment() -> None:
    at_once = tuple(aborted(f"n{n}", AT + 1 + n / 100, AT + 3 + n / 10) for n in range(5))
    failed = aborted("n7", AT + 1, AT + 3, detail="it did not answer")
    later = aborted("n8", AT + 60, None)
    view = IncidentView("i", "n1", "acting", "t", AT, actions=(*at_once, failed, later))
    told = [(m.text, len(m.nodes)) for m in build_incident_timeline(view) if m.kind == "action"]
    assert told == [
        ("abort planned", 6),
        ("abort succeeded after 2.0 s to 2.4 s", 5),
        ("abort succeeded after 2.0 s: it did not answer", 1),
        ("abort planned", 1),
    ]


def test_the_row_of_what_runs_says_since_when_and_the_incident_when_it_began() -> None:
    early, late = (ActionView(n, "reset_gpu", n, "running", AT, AT + 60, began_at=AT + 1 + int(n)) for n in "12")
    third = ActionView("3", "reset_gpu", "3", "running", AT, AT + 60, began_at=AT + 4)
    [row] = group_actions([late, early, third])
    assert (row.began_at, row.finished_at) == (AT + 2, None)
    told = [
        (m.at, m.text) for m in build_incident_timeline(IncidentView("i", "1", "acting", "t", AT, actions=(early,)))
    ]
    assert told == [
        (AT, "incident opened"),
        (AT, f"{step_text('reset_gpu')} planned"),
        (AT + 2, f"{step_text('reset_gpu')} started"),
    ]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100), st.floats(0, 100) | st.none()), max_size=30))
def test_a_timeline_keeps_every_action(made: list[tuple[str, float, float | None]]) -> None:
    actions = tuple(
        ActionView(
            f"{n}", verb, f"n{n}", "succeeded", AT + at, AT, finished_at=None if took is None else AT + at + took
        )
        for n, (verb, at, took) in enumerate(made)
    )
    moments = [
        m
        for m in build_incident_timeline(IncidentView("i", "n1", "acting", "t", AT, actions=actions))
        if m.kind == "action"
    ]
    named = [node for moment in moments for node in moment.nodes]
    assert sorted(named) == sorted(a.node for a in actions for _ in range(1 + (a.finished_at is not None)))
    assert [m.at for m in moments] == sorted(m.at for m in moments)


def test_an_alert_that_reached_nobody_has_not_succeeded() -> None:
    alert = ActionView(
        "a", "alert", "n1", "succeeded", AT, AT + 9, finished_at=AT + 0.5, lacks=MissingOutcome.TOLD_NOBODY
    )
    assert (
        build_incident_timeline(IncidentView("i", "n1", "open", "t", AT, actions=(alert,)))[-1].text
        == "alert not delivered after 500 ms"
    )


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_every_latency_has_a_word(seconds: float) -> None:
    word = format_latency(seconds)
    assert word == "–" if not 0 <= seconds < 1e12 else word[-1] in "smnhd"


def test_a_rank_is_compared_within_its_stage_without_communication() -> None:
    told = [status(n, own=1.0 if n < 4 else 0.5, stage=n // 4) for n in range(8)]
    told[1] = status(1, own=1.3, stage=0)
    drawn = rank_heatmap.build_rank_picture(crew(told, 2))
    assert drawn.unit == "a rank"
    assert [stage.number for stage in drawn.stages] == [0, 1]
    assert [cell.level for cell in drawn.stages[0].cells] == ["0", "4", "0", "0"]
    assert {cell.level for cell in drawn.stages[1].cells} == {"0"}  # half as long is usual there
    (slow,) = drawn.slowest
    assert (slow.ranks, slow.node, round(slow.excess, 3)) == ((1,), "n00000", 0.3)


def test_the_dead_and_the_silent_are_neither_fast_nor_slow() -> None:
    drawn = rank_heatmap.build_rank_picture(crew([status(0), status(1, alive=False), status(2, step_median=0.0)], 3))
    assert [cell.level for cell in drawn.stages[0].cells] == ["0", rank_heatmap.NOT_ALIVE, rank_heatmap.NOT_TOLD]
    assert (drawn.stages[0].dead, drawn.stages[0].own) == (1, 1.0)


@pytest.mark.parametrize(("nodes", "unit"), [(128, "a rank"), (129, "a node"), (1601, "2 nodes"), (12_500, "8 nodes")])
def test_squares_stay_few_and_lose_nobody(nodes: int, unit: str) -> None:
    drawn = rank_heatmap.build_rank_picture(crew([status(n, own=1.5 if n == 77 else 1.0) for n in range(nodes * 8)], 8))
    assert drawn.unit == unit
    (stage,) = drawn.stages
    assert len(stage.cells) <= max(rank_heatmap.RANK_CELLS_MAX, rank_heatmap.CELLS_MAX)
    assert [cell.level for cell in stage.cells if cell.level != "0"] == ["4"]  # the slow one shows, in whatever crowd
    assert stage.ranks == nodes * 8
    assert len({(cell.column, cell.line) for cell in stage.cells}) == len(stage.cells)
    assert stage.lines == math.ceil(len(stage.cells) / rank_heatmap.COLUMNS)


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 2, allow_nan=False), st.booleans()), max_size=40))
def test_every_rank_has_a_square(told: list[tuple[int, float, bool]]) -> None:
    living = [
        [status(n, own, stage, alive=alive), status(n + 100, stage=stage)] for n, (stage, own, alive) in enumerate(told)
    ]
    drawn = rank_heatmap.build_rank_picture(crew([each for pair in living for each in pair], 4))
    assert sum(len(stage.cells) for stage in drawn.stages) == 2 * len(told)
    assert sum(stage.dead for stage in drawn.stages) == sum(not alive for *_, alive in told)


@pytest.mark.parametrize("nodes", [1, 64, 65, 700, 12_500])
def test_windows_are_unpacked_of_some_ranks_from_everywhere(nodes: int) -> None:
    report_registry = ReportRegistry()
    windows = (StepWindow(0, 8, 8, 1.0),)
    for n in range(nodes):
        own = [status(8 * n + local, windows=windows) for local in range(8)]
        told = (*own, RankStatus("other", 0, n, nodes, 1, 5, "step", AT, windows=windows))
        report_registry.take(
            Report(
                version=1,
                node=f"n{n:05}",
                boot_id="b",
                agent="a",
                seq=1,
                sent_at=AT,
                ttl_s=30,
                health=Health.HEALTHY,
                ranks=told,
            ),
            AT,
        )
    found = rank_heatmap.sample_ranks_with_windows(report_registry.entries(), JobRef("a", 0))
    assert min(8 * nodes, rank_heatmap.SAMPLE // 2) <= len(found) <= rank_heatmap.SAMPLE
    assert {rank.job for rank in found} == {"a"}
    assert all(rank.windows for rank in found)
    assert {rank.rank % 8 for rank in found} == set(range(8))
    assert max(rank.rank for rank in found) >= 0.9 * 8 * (nodes - 1)


def test_windows_of_many_ranks_are_laid_side_by_side() -> None:
    def of(number: int, step_s: float) -> RankStatus:
        return status(number, windows=(StepWindow(8, 8, 8, step_s, None, None, 0.25), StepWindow(0, 8, 8, 1.0)))

    first, second = rank_heatmap.summarize_step_windows([of(0, 1.0), of(1, 2.0), of(2, 1.0)])
    assert (first.first, first.last, first.ranks, first.step, first.own) == (0, 7, 3, 1.0, 1.0)
    assert (second.first, second.step, second.slowest, second.own) == (8, 1.0, 2.0, 0.75)


def test_whom_it_hits_counts_jobs_and_the_budget() -> None:
    plan = ((StepRun(Step(Verb.DRAIN)),), (StepRun(Step(Verb.PREFLIGHT, "gate")),))
    incident = Incident(id="i", node="rack:r1", title="t", opened_at=AT, wide=True, members=("n1", "n2"), plan=plan)
    nodes = {name: NodeRecord(node=name, jobs=(JobRef("a", 0),)) for name in ("n1", "n2", "n3")}
    snapshot = StateSnapshot(nodes=nodes, findings={}, incidents={}, actions={}, holds={})
    seen = StatusView("c", "1", "act", 1, "p", AT, 3, {}, {}, 1, 2, 0, 0, "ok")
    hits = compute_blast_radius(incident, {}, seen, snapshot, ReportRegistry(), count_job_nodes(snapshot))
    assert hits.stages == (("drain",), ("preflight: gate",))
    assert hits.nodes == ("n1", "n2")
    assert [(hit.job, hit.nodes_hit, hit.nodes) for hit in hits.jobs] == [("a", 2, 3)]
    assert hits.level == (1, 1, 2)  # its rule is not known, so nobody says that it isolates
