from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.api.hazard_handlers import JobHazards
from remediator.detection.failure_hazard import (
    DAY_S,
    NODE_MTBF_H,
    OF_FINDING,
    RETURNED_LATELY,
    RETURNED_SINCE,
    TREND_MAX,
    XID_THIS_WEEK,
    XID_TODAY,
    choose_placement,
    compute_job_hazard,
    lemon_factor,
    newest_attempt_held,
)
from remediator.engine.decision_engine import StateSnapshot
from remediator.model.journal_records import JobRef, NodeRecord
from remediator.model.rule_conditions import NodeState
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.job_hazard import JobHazard
from vocabulary.messages.wire import decode_message

NOW = 1e9
USUAL = 1 / (NODE_MTBF_H * 3600)


def node(name: str, attempt: int = 1, **more: object) -> NodeRecord:
    return NodeRecord(name, jobs=(JobRef("train", attempt),), **more)  # type: ignore[arg-type]  # by name


def finding(severity: Severity, kind: ComponentKind = ComponentKind.GPU, *, active: bool = True) -> Finding:
    return Finding(
        id="f", node="n1", check="xid", code="63", component=Component(kind), severity=severity, summary="",
        first_seen=0, last_seen=0, origin="", active=active,
    )  # fmt: skip


def factor(of: NodeRecord, findings: Iterable[Finding] = ()) -> float:
    found = compute_job_hazard("train", [of], {"n1": findings}, NOW)
    assert found is not None
    return found.per_s / USUAL


def test_a_job_fails_as_often_as_its_nodes_together() -> None:
    found = compute_job_hazard("train", [node(f"n{i}") for i in range(128)], {}, NOW)
    assert found is not None
    assert (found.nodes, found.attempt, found.risks) == (128, 1, ())
    assert 1 / found.per_s == pytest.approx(NODE_MTBF_H * 3600 / 128)


def test_the_attempt_that_most_nodes_hold_counts_the_newest_of_as_many() -> None:
    nodes = [node("n1"), node("n2", attempt=2), node("n3", attempt=2)]
    found = compute_job_hazard("train", nodes, {}, NOW)
    assert found is not None
    assert (found.nodes, found.attempt) == (2, 2)
    assert compute_job_hazard("other", nodes, {}, NOW) is None
    assert compute_job_hazard("train", [], {}, NOW) is None
    assert newest_attempt_held("train", nodes[:2]) == 2


def test_one_node_cannot_speak_for_the_attempt_of_all_others() -> None:
    nodes = [*(node(f"n{i}") for i in range(32)), node("evil", attempt=999)]
    found = compute_job_hazard("train", nodes, {}, NOW)
    assert found is not None
    assert (found.nodes, found.attempt) == (32, 1)


def test_who_asks_is_told_of_the_attempt_it_holds_itself() -> None:
    nodes = {each.node: each for each in (node("n1"), node("n2"), node("n3", attempt=2))}
    jobs = JobHazards(StateSnapshot(nodes, {}, {}, {}, {}), NOW)
    told = {
        asker: decode_message(jobs.answer("train", asker, NODE_MTBF_H), JobHazard)
        for asker in (None, "n1", "n3", "other")
    }
    assert [(each.attempt, each.nodes) for each in told.values()] == [(1, 2), (1, 2), (2, 1), (1, 2)]


@pytest.mark.parametrize("severity", OF_FINDING)
def test_what_a_node_says_of_itself_counts_until_it_is_cleared(severity: Severity) -> None:
    assert factor(node("n1"), [finding(severity)]) == pytest.approx(OF_FINDING[severity])
    assert factor(node("n1"), [finding(severity, active=False)]) == pytest.approx(1)


@pytest.mark.parametrize("kind", [ComponentKind.RANK, ComponentKind.AGENT])
def test_a_jobs_own_trouble_breaks_no_hardware(kind: ComponentKind) -> None:
    assert factor(node("n1"), [finding(Severity.WARNING, kind)]) == pytest.approx(1)


def test_a_node_that_came_back_is_likelier_to_fail_and_the_less_so_the_longer_it_holds() -> None:
    back = node("n1", state=NodeState.PROBATION, since=NOW - 3600, isolated_at=NOW - 2 * DAY_S)
    assert factor(back) == pytest.approx(RETURNED_LATELY)
    settled = node("n1", since=NOW - 3 * DAY_S, isolated_at=NOW - 5 * DAY_S)
    assert factor(settled) == pytest.approx(RETURNED_SINCE)
    assert factor(node("n1", isolated_at=NOW - 29 * DAY_S)) == pytest.approx(1)


def test_the_worst_of_what_is_known_counts_and_is_named() -> None:
    back = node("n1", state=NodeState.PROBATION, since=NOW - 3600)
    found = compute_job_hazard(
        "train", [back, node("n2")], {"n1": [finding(Severity.WARNING), finding(Severity.ERROR)]}, NOW
    )
    assert found is not None
    assert [(r.node, r.factor, r.why) for r in found.risks] == [("n1", OF_FINDING[Severity.ERROR], "xid/63 (error)")]
    assert found.per_s == pytest.approx((OF_FINDING[Severity.ERROR] + 1) * USUAL)


@given(st.lists(st.sampled_from(list(Severity)), max_size=6), st.floats(0, 1e9), st.sampled_from(list(NodeState)))
def test_no_history_makes_a_node_safer_than_usual(severities: list[Severity], since: float, state: NodeState) -> None:
    assert factor(node("n1", state=state, since=since), [finding(each) for each in severities]) >= 0.999


def warning(kind: str, count: int = 1, severity: Severity = Severity.WARNING) -> Finding:
    check, code = kind.split("/")
    return msgspec.structs.replace(finding(severity), check=check, code=code, count=count)


@pytest.mark.parametrize(
    ("worse", "milder"),
    [
        ("row_remap/spares", "row_remap/many"),
        ("row_remap/many", "throttle/sw_thermal"),
        ("ecc/sram_threshold", "row_remap/spares"),
        ("throttle/hw_power_brake", "throttle/hw_thermal"),
        ("infiniband/flapping", "ethernet/flapping"),
        ("throttle/sw_thermal", "infiniband/congested"),
    ],
)
def test_a_kind_that_leads_to_failures_weighs_more_than_one_that_does_not(worse: str, milder: str) -> None:
    assert factor(node("n1"), [warning(worse)]) > factor(node("n1"), [warning(milder)])


def test_what_is_known_of_a_kind_never_softens_an_error() -> None:
    assert factor(node("n1"), [warning("throttle/hw_thermal", severity=Severity.ERROR)]) == pytest.approx(
        OF_FINDING[Severity.ERROR]
    )


def test_corrected_errors_weigh_more_as_they_come_again_up_to_a_limit() -> None:
    seen = [factor(node("n1"), [warning("ecc/corrected", count)]) for count in (1, 2, 4, 8, 1000)]
    assert seen == sorted(seen)
    assert seen[2] > 2 * seen[0]
    assert seen[-1] == pytest.approx(TREND_MAX * seen[0])
    assert factor(node("n1"), [warning("fan/slow", 1000)]) == pytest.approx(factor(node("n1"), [warning("fan/slow")]))


def test_an_xid_that_is_over_is_remembered_for_a_week_and_a_jobs_own_is_not() -> None:
    def cleared(code: str, age_s: float) -> Finding:
        return msgspec.structs.replace(finding(Severity.FATAL, active=False), code=code, last_seen=NOW - age_s)

    assert factor(node("n1"), [cleared("79", 3600)]) == pytest.approx(XID_TODAY)
    assert factor(node("n1"), [cleared("79", 3 * DAY_S)]) == pytest.approx(XID_THIS_WEEK)
    assert factor(node("n1"), [cleared("79", 8 * DAY_S)]) == pytest.approx(1)
    assert factor(node("n1"), [cleared("43", 3600)]) == pytest.approx(1)


def lemon(probability: float, multiplier: float) -> Finding:
    evidence = {"probability": probability, "multiplier": multiplier}
    about = Component(ComponentKind.HOST)
    return msgspec.structs.replace(
        finding(Severity.ERROR), check="lemon", code="confirmed", component=about, evidence=evidence
    )


def test_a_suspected_lemon_makes_its_job_save_more_often() -> None:
    usual = compute_job_hazard("train", [node("n1"), node("n2")], {}, NOW)
    sour = compute_job_hazard("train", [node("n1"), node("n2")], {"n2": [lemon(0.8, 31)], "n1": [lemon(0.2, 0.5)]}, NOW)
    assert usual is not None
    assert sour is not None
    assert sour.per_s == pytest.approx(usual.per_s * (1 + 25) / 2)
    assert [(risk.node, risk.factor) for risk in sour.risks] == [("n2", 25.0)]


@pytest.mark.parametrize(("probability", "multiplier"), [(float("nan"), 5), (0.5, float("inf")), (-1, 5), (0.5, 0.1)])
def test_nonsense_makes_no_suspect(probability: float, multiplier: float) -> None:
    assert lemon_factor(probability, multiplier) == 1.0
    found = compute_job_hazard("train", [node("n1")], {"n1": [lemon(probability, multiplier)]}, NOW)
    assert found is not None
    assert found.per_s == pytest.approx(USUAL)


def test_a_job_is_placed_where_it_lives_longest() -> None:
    free = [node(f"n{i}") for i in range(6)]
    advice = choose_placement(4, free, {"n0": [finding(Severity.ERROR)], "n2": [lemon(0.5, 13)]}, NOW)
    assert advice is not None
    assert advice.chosen == ("n1", "n3", "n4", "n5")
    assert [risk.node for risk in advice.avoided] == ["n0", "n2"]
    assert advice.per_s == pytest.approx(4 * USUAL)
    assert advice.per_s_at_random == pytest.approx((OF_FINDING[Severity.ERROR] + 7 + 4) / 6 * 4 * USUAL)
    whole = choose_placement(6, free, {"n0": [finding(Severity.ERROR)]}, NOW)
    assert whole is not None
    assert whole.per_s == pytest.approx(whole.per_s_at_random)


@pytest.mark.parametrize("wanted", [0, 7])
def test_no_place_for_a_job_that_does_not_fit(wanted: int) -> None:
    assert choose_placement(wanted, [node(f"n{i}") for i in range(6)], {}, NOW) is None


@given(st.lists(st.sampled_from(list(Severity)), min_size=1, max_size=8), st.data())
def test_no_other_choice_is_better(severities: list[Severity], data: st.DataObject) -> None:
    free = [node(f"n{i}") for i in range(len(severities))]
    findings = {f"n{i}": [finding(severity)] for i, severity in enumerate(severities)}
    wanted = data.draw(st.integers(1, len(free)))
    advice = choose_placement(wanted, free, findings, NOW)
    other = compute_job_hazard("train", data.draw(st.permutations(free))[:wanted], findings, NOW)
    assert advice is not None
    assert other is not None
    assert advice.per_s <= other.per_s * (1 + 1e-9)
