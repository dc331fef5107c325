"""What a post-mortem says of a story: times, cost, cause, jobs, follow-ups, curves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.model.journal_records import Action, ActionState, AuditEvent, IncidentState
from remediator.postmortem.document_rendering import DocumentForm, render_document
from remediator.postmortem.evidence_charts import POINTS_MAX, build_evidence_charts, thin_points
from remediator.postmortem.postmortem_document import ChartLine, PostMortem
from remediator.postmortem.postmortem_facts import build_post_mortem
from remediator.postmortem.svg_plot import SPARK_COLUMNS, nice_ticks, render_chart_svg, render_sparkline
from tests.unit.remediator.postmortem.sample_incident import (
    GPUS,
    INCIDENT,
    JOB_NODES,
    LOST,
    NODE,
    T,
    abort,
    action,
    bundle,
    finding,
    story,
)
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.evidence_bundle import KernelLine, Series
from vocabulary.order import Order, OrderKind

DONE = ActionState.SUCCEEDED


def graceful(node: str, saved_at: float, state: ActionState = DONE) -> Action:
    order = Order(
        id=f"o-{node}",
        kind=OrderKind.CHECKPOINT_THEN_EJECT,
        node=node,
        issued_at=T + 1,
        expires_at=T + 121,
        incident=INCIDENT,
        reason="r",
        job="j",
        attempt=1,
    )
    data: dict[str, Any] = {"agreed_step": 41, "saved_at": saved_at, "path": "/ckpt/41"} if state is DONE else {}
    return action("checkpoint_then_eject", node, T + 1, saved_at - T, state, order=order, data=data)


def returned(after_s: float) -> list[Action]:
    return [
        action("cordon", NODE, T + 1, 1.0, DONE),
        graceful(NODE, T + 20),
        graceful("gpu-18", T + 22),
        action("resume", NODE, T + after_s - 1, 1.0, DONE),
    ]


def closed(told: Any, at: float, **more: Any) -> Any:
    incident = msgspec.structs.replace(told.incident, state=IncidentState.CLOSED, closed_at=at, plan=(), outcome="back")
    return msgspec.structs.replace(told, incident=incident, **more)


def spans(told: PostMortem) -> dict[str, float | None]:
    return {span.name: span.seconds for span in told.spans}


def test_a_node_that_came_back_cost_its_time_out_of_service() -> None:
    told = build_post_mortem(closed(story(actions=returned(3602.0), returns={"j": T + 142}), T + 3602))
    assert spans(told) == {
        "seen on the node until known to the controller": pytest.approx(0.8),
        "known until acted on": pytest.approx(0.2),
        "acted on until no new work": pytest.approx(1.0),
        "acted on until every rank saved": pytest.approx(21.0),
        "out of service": pytest.approx(3600.0),
        "from opening to close": pytest.approx(3601.2),
    }
    (job,) = told.jobs
    assert (job.job, job.nodes, job.step, job.checkpoint, job.how) == (
        "j",
        (NODE, "gpu-18"),
        41,
        "/ckpt/41",
        "saved and left",
    )
    node, stood_still = told.cost.items
    assert (node.gpus, node.gpu_hours) == (8, pytest.approx(8.0))
    assert (stood_still.gpus, stood_still.seconds) == (8, pytest.approx(120.0)), "the other node's alone"
    assert told.cost.gpu_hours == pytest.approx(8.0 + 8 * 120 / 3600)
    assert told.cost.left_out == ()
    assert told.as_of == T + 3602


def test_what_is_assumed_and_what_is_not_known_is_said() -> None:
    told = build_post_mortem(story(evidence=[], gpus={}, returns={}))
    (node,) = told.cost.items
    assert node.assumed
    assert "assumed: 8 GPUs on gpu-17" in node.basis
    assert told.cost.left_out == (
        "job llama-70b stopped: end unknown",
        "job llama-70b: the steps since its last checkpoint, which were repeated",
    )


def test_the_nodes_own_word_on_its_gpus_counts_before_what_is_known_now() -> None:
    four = msgspec.structs.replace(bundle(), gpus=GPUS[:4])
    assert build_post_mortem(story(evidence=[four], gpus={NODE: 8})).cost.items[0].gpus == 4


def test_a_person_may_give_a_node_back_without_us() -> None:
    back = AuditEvent(at=T + 100, kind="node_state", text="…", node=NODE, incident=INCIDENT, data={"to": "probation"})
    told = story()
    told = msgspec.structs.replace(told, events=[*told.events, back])
    assert spans(build_post_mortem(told))["out of service"] == pytest.approx(100 - 1.4)


def test_an_incident_that_isolated_nobody_costs_nothing() -> None:
    told = build_post_mortem(story(actions=[]))
    assert (told.cost.gpu_hours, told.cost.items, told.jobs) == (0.0, (), ())
    assert "was not taken out of service" in told.summary


def test_a_graceful_end_that_became_an_abort_is_told_as_one() -> None:
    first = [graceful(node, T + 60, ActionState.EXPIRED) for node in JOB_NODES]
    second = [abort(node, "j", 90.0) for node in JOB_NODES]
    second = [
        msgspec.structs.replace(a, order=msgspec.structs.replace(a.order, attempt=1), planned_at=T + 61)
        for a in second
        if a.order
    ]
    (job,) = build_post_mortem(story(actions=[*first, *second])).jobs
    assert job.how == "was ordered to save, but was stopped"
    assert (job.step, job.stopped_at) == (None, T)


def test_the_catalogue_is_asked_for_what_the_driver_numbers() -> None:
    told = build_post_mortem(story())
    assert (told.cause.blame, told.cause.finding) == ("pcie", "xid/79")
    follower = finding("45", T, Severity.FATAL, "…", evidence={"burst_first": "79"})
    basis = build_post_mortem(story(findings=[follower])).cause.basis
    assert "not the first of its burst, that was Xid 79" in basis
    unknown = build_post_mortem(story(findings=[finding("4711", T, Severity.UNCLASSIFIED, "…")]))
    assert unknown.cause.blame == "unknown"
    assert any("The catalogue has no entry" in words for words in unknown.follow_ups)


def test_elsewhere_the_rules_reason_is_the_cause() -> None:
    port = Component(ComponentKind.NIC_PORT, "mlx5_0/1")
    link = msgspec.structs.replace(
        finding("x", T, Severity.ERROR, "down"), check="infiniband", code="down", component=port
    )
    cause = build_post_mortem(story(findings=[link])).cause
    assert cause.what.endswith("the GPU does not answer any more")
    assert (cause.blame, cause.basis) == ("nic_port mlx5_0/1", "the reason of rule gpu-lost")


def test_of_several_findings_the_first_of_the_gravest_is_blamed() -> None:
    both = [finding("94", T - 5, Severity.ERROR, "…"), finding("79", T + 1, Severity.FATAL, "…")]
    assert build_post_mortem(story(findings=both)).cause.finding == "xid/79"
    echo = [finding("119", T + 9, Severity.FATAL, "…"), *both]
    assert build_post_mortem(story(findings=echo)).cause.finding == "xid/79"


def test_follow_ups_name_what_is_open() -> None:
    words = build_post_mortem(story()).follow_ups
    assert words[0] == f"Replace {LOST} on {NODE}, then return the node to service."
    assert any(word.startswith("The step 'ticket: a GPU fell off the bus' failed") for word in words)
    assert not any(word.startswith("ticket of") for word in words), "each failure is named once"
    assert any("ethernet (absent: no such interface)" in word for word in words)


def test_whatever_else_waits_for_a_person_is_said_in_its_words() -> None:
    told = story()
    waiting = msgspec.structs.replace(told.incident, plan=(), outcome="nobody knows this node")
    words = build_post_mortem(msgspec.structs.replace(told, incident=waiting)).follow_ups
    assert words[0] == "It needs a person: nobody knows this node."


def test_follow_ups_name_what_recurs_and_what_is_missing() -> None:
    told = story(evidence=[])
    same = msgspec.structs.replace(told.incident, id="inc-0", closed_at=T - 1000)
    other = msgspec.structs.replace(same, id="inc-00", title="nvml/hang on something")
    words = build_post_mortem(msgspec.structs.replace(told, earlier=[other, same])).follow_ups
    assert any("2 earlier incidents of gpu-17, 1 of the same kind" in word for word in words)
    assert any("No evidence of the preceding minutes was kept (ordered, and succeeded)" in word for word in words)


def test_a_closed_incident_whose_node_is_still_out_is_a_follow_up() -> None:
    told = build_post_mortem(closed(story(), T + 60))
    assert any("has not returned to service" in word for word in told.follow_ups)
    assert any("Still reported by the node: xid/154, xid/79" in word for word in told.follow_ups)


def test_kernel_lines_are_those_around_the_fault() -> None:
    lines = (
        KernelLine(T - 500, "long before", 1),
        KernelLine(T - 1, "just before", 2),
        KernelLine(T + 500, "after", 3),
    )
    told = build_post_mortem(story(evidence=[msgspec.structs.replace(bundle(), kernel_lines=lines)]))
    assert [line.text for line in told.kernel_lines] == ["just before"]


def test_the_suspect_gpu_stands_out_also_by_its_address_alone() -> None:
    by_address = Component(ComponentKind.GPU, "", LOST.pci, None)
    named = msgspec.structs.replace(finding("79", T, Severity.FATAL, "…"), component=by_address)
    chart = next(c for c in build_evidence_charts(bundle(), [named], T) if c.title == "temperature")
    assert [(line.label, line.suspect) for line in chart.lines][:2] == [("GPU 3", True), ("GPU 0", False)]


def test_what_never_changed_has_no_chart() -> None:
    titles = [chart.title for chart in build_evidence_charts(bundle(), [], T)]
    assert titles == ["time of a training step", "temperature", "power", "SM clock", "NVLink CRC errors"]


def test_a_fault_of_long_ago_does_not_squeeze_the_curves() -> None:
    chart = build_evidence_charts(bundle(), [], T - 3 * 86400)[0]
    assert (chart.mark, chart.mark_at) == ("asked", bundle().taken_at)
    assert chart.ended - chart.began < 1000


@given(
    st.lists(st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)), max_size=50), st.floats(allow_nan=False)
)
def test_no_number_in_a_bundle_breaks_a_chart(points: list[tuple[float, float]], at: float) -> None:
    series = (Series("temperature", "°C", "gpu:x", tuple(points)),)
    wild = msgspec.structs.replace(bundle(), series=series, taken_at=at)
    for number, chart in enumerate(build_evidence_charts(wild, [], T)):
        assert len(render_chart_svg(chart, number)) < 100_000
        assert len(render_sparkline(chart.lines[0], chart)) == SPARK_COLUMNS + 1


@given(st.lists(st.floats(min_value=-1e6, max_value=1e6), max_size=3000))
def test_thinning_keeps_the_lowest_and_the_highest(values: list[float]) -> None:
    points = [(float(number), value) for number, value in enumerate(values)]
    kept = thin_points(points)
    assert len(kept) <= POINTS_MAX + 2
    assert list(kept) == sorted(kept)
    assert set(kept) <= set(points)
    if values:
        assert {min(values), max(values)} <= {value for _, value in kept}


@given(st.floats(min_value=-1e18, max_value=1e18), st.floats(min_value=0, max_value=1e18))
def test_ticks_are_few_and_hold_every_value(low: float, width: float) -> None:
    ticks = nice_ticks(low, low + width)
    assert 2 <= len(ticks) <= 8
    assert ticks[0] <= low + max(1e-8, abs(low) * 1e-9)
    assert ticks[-1] >= low + width - max(1e-8, abs(low + width) * 1e-9)


def test_times_that_are_none_are_shown_as_they_are() -> None:
    told = build_post_mortem(story())
    odd = msgspec.structs.replace(told, opened_at=1e300, closed_at=-1e300)
    for form in DocumentForm:
        assert "1e+300" in render_document(odd, form) or form is DocumentForm.JSON


def test_a_line_of_one_point_is_drawn() -> None:
    chart = msgspec.structs.replace(
        build_evidence_charts(bundle(), [], T)[0], lines=(ChartLine("GPU 0", ((T, 1.0),)),), began=T, ended=T
    )
    assert "h0.1" in render_chart_svg(chart, 1)
