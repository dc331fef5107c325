"""Incidents that say the same stand as one row, and none is lost or hidden by it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remediator.model.journal_records import Answer, Incident, IncidentState
from remediator.model.plan_steps import Step, StepRun, StepState, Verb
from remediator.web import fleet_heatmap
from remediator.web.incident_grouping import ALIKE_MIN, group_incidents
from remediator.web.template_rendering import format_number_ranges
from tests.unit.remediator.web.node_reports import finding
from vocabulary.finding import Finding, Severity

KINDS = (("79", Severity.FATAL), ("63", Severity.WARNING))


def opened(number: int, code: int = 0, **more: object) -> tuple[Incident, Finding]:
    kind, severity = KINDS[code]
    found = replace(finding(f"n{number}", f"n{number}: {kind}", severity, kind), id=f"f{number}")
    fields = {
        "id": f"i{number}",
        "node": f"n{number}",
        "title": "t",
        "opened_at": 100.0 - number,
        "findings": (found.id,),
    }
    return Incident(**(fields | {"rule": "r", "answer": Answer.RECOMMEND} | more)), found  # type: ignore[arg-type]  # fields


def test_a_hundred_alike_are_one_row_with_the_oldest_time() -> None:
    pairs = [opened(n) for n in range(100)]
    (row,) = group_incidents([i for i, _ in pairs], {f.id: f for _, f in pairs})
    assert len(row.incidents) == 100
    assert (row.first.id, row.since) == ("i0", 1.0)
    assert (row.kind, row.summary) == ("row_remap/79", "n0: 79")


def test_plans_that_are_as_far_are_one_row_and_one_further_is_another() -> None:
    def at(number: int, state: StepState) -> tuple[Incident, Finding]:
        return opened(number, state=IncidentState.ACTING, plan=((StepRun(step=Step(verb=Verb.DRAIN), state=state),),))

    pairs = [at(n, StepState.RUNNING) for n in range(ALIKE_MIN)] + [at(9, StepState.SUCCEEDED)]
    rows = group_incidents([i for i, _ in pairs], {f.id: f for _, f in pairs})
    assert [len(row.incidents) for row in rows] == [ALIKE_MIN, 1]


def test_what_differs_in_what_people_must_know_stays_apart() -> None:
    apart = [
        {"answer": Answer.BLOCKED},
        {"rule": "other"},
        {"state": IncidentState.WAITING},
        {"acknowledged_by": "ann"},
        {"injected": True},
        {"wide": True},
        {"wide": True},
    ]
    pairs = [opened(n) for n in range(ALIKE_MIN)] + [opened(10 + n, **more) for n, more in enumerate(apart)]
    pairs += [opened(90, 1), (opened(91)[0], replace(opened(91)[1], active=False))]
    rows = group_incidents([i for i, _ in pairs], {f.id: f for _, f in pairs})
    assert [len(row.incidents) for row in rows] == [ALIKE_MIN, *[1] * (len(apart) + 2)]


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["", "ann"]), st.booleans()), max_size=30))
def test_every_incident_is_in_one_row_and_the_first_of_each_keeps_its_place(told: list[tuple[int, str, bool]]) -> None:
    pairs = [opened(n, code, acknowledged_by=by, wide=wide) for n, (code, by, wide) in enumerate(told)]
    incidents = [i for i, _ in pairs]
    rows = group_incidents(incidents, {f.id: f for _, f in pairs})
    assert sorted(i.id for row in rows for i in row.incidents) == sorted(i.id for i in incidents)
    for row in rows:
        assert list(row.incidents) == [i for i in incidents if i in row.incidents]
        assert len(row.incidents) == 1 or len(row.incidents) >= ALIKE_MIN
    order = [incidents.index(row.first) for row in rows]
    assert order == sorted(order)


def test_the_legend_counts_only_what_is_drawn() -> None:
    rows = [
        fleet_heatmap.HeatmapRow("a", 3, (("healthy", 2), ("suspect", 1)), (("healthy", 3),), 1),
        fleet_heatmap.HeatmapRow("b", 1, (("suspect", 1),), (("unknown", 1),), 1),
    ]
    assert fleet_heatmap.heatmap_legend(rows, by_health=False) == (("healthy", 2), ("suspect", 2))
    assert fleet_heatmap.heatmap_legend(rows, by_health=True) == (("healthy", 3), ("unknown", 1))


@given(st.sets(st.integers(0, 60)))
def test_ranges_name_the_same_numbers(numbers: set[int]) -> None:
    named = set()
    for part in format_number_ranges(numbers).split(", ") if numbers else ():
        first, _, last = part.partition("–")
        named |= set(range(int(first), int(last or first) + 1))
    assert named == numbers
