"""The pages' pure parts: pictures, plots, forms' origins, words."""

from __future__ import annotations

import doctest
import math
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.model.journal_records import Answer, NodeRecord
from remediator.model.node_location import NodeLocation
from remediator.model.rule_conditions import NodeState
from remediator.model.views import IncidentView, PendingApproval, StepView
from remediator.model.views_telemetry import SeriesView
from remediator.web import automation_blockers, csrf_protection, fleet_heatmap, telemetry_plots, template_rendering
from remediator.web.incident_progress import incident_progress_text, steps_to_come
from remediator.web.response_cache import FRESH_S, KEPT_MAX, ResponseCache

NAMES = st.text("abc-019", min_size=1, max_size=8)
RECORDS = st.dictionaries(
    NAMES, st.tuples(st.sampled_from(NodeState), st.sampled_from(["", "r1", "r2", "r10"])), max_size=30
).map(
    lambda found: [
        NodeRecord(name, state=state, places=NodeLocation(rack=rack)) for name, (state, rack) in found.items()
    ]
)


def health(node: str) -> str:
    return fleet_heatmap.HEALTHS[len(node) % len(fleet_heatmap.HEALTHS)]


@given(RECORDS, st.sampled_from(fleet_heatmap.GROUPINGS))
def test_a_picture_shows_every_node_once_as_it_is(records: list[NodeRecord], by: str) -> None:
    found = fleet_heatmap.build_heatmap_picture(
        fleet_heatmap.group_nodes(records, health, fleet_heatmap.HeatmapFilter(), by), by, 1.0
    )
    shown = {
        node: (found.states[int(state, 36)], found.healths[int(well, 36)])
        for group in found.groups
        for node, state, well in zip(group.nodes, group.states, group.healths, strict=True)
    }
    assert shown == {record.node: (record.state.value, health(record.node)) for record in records}
    assert sum(len(group.nodes) for group in found.groups) == len(records)


@given(RECORDS, st.sampled_from(fleet_heatmap.GROUPINGS))
def test_the_words_count_the_same_nodes(records: list[NodeRecord], by: str) -> None:
    rows = fleet_heatmap.build_heatmap_rows(
        fleet_heatmap.group_nodes(records, health, fleet_heatmap.HeatmapFilter(), by)
    )
    counted: Counter[str] = Counter()
    for row in rows:
        assert sum(number for _, number in row.states) == sum(number for _, number in row.healths) == row.total
        counted.update(dict(row.states))
    assert counted == Counter(record.state.value for record in records)
    assert [row.broken for row in rows] == sorted((row.broken for row in rows), reverse=True)


def test_groups_stand_in_the_order_in_which_people_count() -> None:
    records = [NodeRecord(f"n{n}", places=NodeLocation(rack=f"r{n % 3 * 9}" if n else "")) for n in (10, 9, 2, 1, 0)]
    names = [name for name, _ in fleet_heatmap.group_nodes(records, health, fleet_heatmap.HeatmapFilter(), "rack")]
    assert names == ["r0", "r9", "r18", ""]


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (fleet_heatmap.HeatmapFilter(), True),
        (fleet_heatmap.HeatmapFilter(match="pu-1"), True),
        (fleet_heatmap.HeatmapFilter(match="pu-1*"), False),
        (fleet_heatmap.HeatmapFilter(match="gpu-1?"), True),
        (fleet_heatmap.HeatmapFilter(state="suspect"), True),
        (fleet_heatmap.HeatmapFilter(state="healthy"), False),
        (fleet_heatmap.HeatmapFilter(health="unknown"), False),
        (fleet_heatmap.HeatmapFilter(place="rack:r1"), True),
        (fleet_heatmap.HeatmapFilter(place="rack:r"), False),
        (fleet_heatmap.HeatmapFilter(broken=True), True),
    ],
)
def test_what_is_asked_for_is_found(wanted: fleet_heatmap.HeatmapFilter, *, fits: bool) -> None:
    record = NodeRecord("gpu-17", state=NodeState.SUSPECT, places=NodeLocation(rack="r1"))
    assert wanted.fits(fleet_heatmap.NodeCell.of(record, "healthy")) is fits


@pytest.mark.parametrize(
    ("state", "word", "well"),
    [
        (NodeState.HEALTHY, "healthy", True),
        (NodeState.HEALTHY, "degraded", False),
        (NodeState.HEALTHY, "unknown", False),
        (NodeState.QUARANTINED, "healthy", False),
        (NodeState.RETIRED, "unknown", True),
    ],
)
def test_who_is_well_is_not_among_the_broken(state: NodeState, word: str, *, well: bool) -> None:
    seen = fleet_heatmap.NodeCell.of(NodeRecord("n", state=state), word)
    assert fleet_heatmap.HeatmapFilter(broken=True).fits(seen) is not well


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
SERIES = st.lists(
    st.tuples(st.none() | st.integers(0, 15), st.sampled_from(["power", "temp"]), st.lists(NUMBERS, max_size=20)),
    max_size=12,
)


@given(SERIES)
def test_any_readings_give_paths_within_the_plot(told: list[tuple[int | None, str, list[float]]]) -> None:
    series = [
        SeriesView(gpu, name, "W", tuple(1000.0 + 30 * n for n in range(len(values))), tuple(values))
        for gpu, name, values in told
    ]
    drawn, zero = telemetry_plots.build_telemetry_plots(series, now=1600.0)
    assert {plot.name for plot in drawn}.isdisjoint(zero)
    for plot in drawn:
        for curve in plot.curves:
            assert re.fullmatch(r"(M-?\d+\.\d -?\d+\.\d(L-?\d+\.\d -?\d+\.\d)*)*(h0\.1)?", curve.path), curve.path
            for y in re.findall(r" (-?\d+\.\d)", curve.path):
                assert -0.1 <= float(y) <= telemetry_plots.HEIGHT + 0.1


def test_a_gap_is_not_drawn_over() -> None:
    times = (100.0, 130.0, 160.0, 900.0, 930.0)
    [plot], zero = telemetry_plots.build_telemetry_plots(
        [SeriesView(0, "power", "W", times, (1.0, 2.0, math.nan, 4.0, 5.0))], now=1000.0
    )
    [curve] = plot.curves
    assert re.sub(r"[^ML]", "", curve.path) == "MLML"
    assert (curve.last, curve.low, curve.high, zero) == ("5", "1", "5", [])


def test_what_was_nought_all_the_time_is_named_and_not_drawn() -> None:
    drawn, zero = telemetry_plots.build_telemetry_plots(
        [SeriesView(g, "ECC", "", (1.0,), (0.0,)) for g in range(8)], now=2.0
    )
    assert (drawn, zero) == ([], ["ECC"])


@given(st.text(max_size=40))
def test_a_login_leads_to_a_path_of_ours(text: str) -> None:
    path = csrf_protection.local_redirect_path(text)
    assert path.startswith("/")
    assert not path.startswith(("//", "/\\"))
    assert path in {text, "/"}


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_forms_token_fits_its_own_session_alone(one: str, other: str) -> None:
    assert csrf_protection.is_csrf_token_valid(csrf_protection.csrf_token(one), one)
    assert csrf_protection.is_csrf_token_valid(csrf_protection.csrf_token(one), other) is (one == other)
    assert not csrf_protection.is_csrf_token_valid(other, one) or other == csrf_protection.csrf_token(one)


def incident(*steps: tuple[str, str], outcome: str = "", awaits: tuple[PendingApproval, ...] = ()) -> IncidentView:
    told = tuple(StepView(text, state) for text, state in steps)
    return IncidentView("i", "n", "open", "t", 1.0, outcome=outcome, steps=told, awaits=awaits)


def test_progress_in_one_line() -> None:
    half = incident(("cordon", "succeeded"), ("preflight: gate", "running"), ("resume", "pending"))
    assert incident_progress_text(half) == "step 2 of 3, running: preflight: gate"
    assert steps_to_come(half) == ("resume",)
    assert incident_progress_text(incident(awaits=(PendingApproval("x", "cordon n"),))) == "awaiting approval: cordon n"
    assert incident_progress_text(incident(("cordon", "succeeded"))) == "all 1 steps are done"
    assert incident_progress_text(incident()) == "nothing planned"
    assert incident_progress_text(incident(outcome="t")) == "waiting for an operator"
    assert incident_progress_text(incident(), Answer.BLOCKED, "gpu-lost") == "held back by a guard (rule gpu-lost)"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("gpu-1", "/nodes/gpu-1"),
        ("rack:r1", "/nodes?place=rack%3Ar1"),
        ("job:a/b?<", "/jobs/a/b%3F%3C"),
        ("cluster:breaker", ""),
    ],
)
def test_what_an_incident_is_about_is_a_link_that_exists(name: str, path: str) -> None:
    macros = template_rendering._page_environment().get_template("macros.html.j2").make_module({"when": str})
    html = str(macros.node_link(name)).strip()  # type: ignore[attr-defined]  # made by the template
    assert html.startswith(f'<a class="name{" job" if "job:" in name else ""}" href="{path}"' if path else "<span")
    assert "<" not in html[1:].replace("</a>", "").replace("</span>", "")


@pytest.mark.parametrize(("at", "says"), [(None, "–"), (1e300, "1e+300 s"), (0.0, "1970-01-01 00:00:00Z")])
def test_a_moment_that_cannot_be_is_still_shown(at: float | None, says: str) -> None:
    assert template_rendering.format_moment(at) == says
    assert template_rendering.format_age(at, 5.0)


@given(st.floats(allow_nan=False), st.floats(0, 4e9))
def test_every_moment_can_be_shown(at: float, now: float) -> None:
    assert "<time" in template_rendering.format_age(at, now)


def test_doctests() -> None:
    for module in (automation_blockers, template_rendering, fleet_heatmap, telemetry_plots, csrf_protection):
        assert doctest.testmod(module).failed == 0


def test_what_is_dear_is_worked_out_once_a_second() -> None:
    now, worked = [0.0], []
    recent: ResponseCache[int] = ResponseCache(lambda: now[0])

    def work(key: str) -> int:
        return recent.get(key, lambda: len(worked.append(key) or worked))  # type: ignore[func-returns-value]  # counts

    assert [work("a"), work("a"), work("b"), work("a")] == [1, 1, 2, 1]
    now[0] = FRESH_S
    assert work("a") == 3
    for n in range(KEPT_MAX):
        work(str(n))
    assert work("a") == len(worked)  # what is kept is bounded
