from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.detect.hazard import DAY_S, NODE_MTBF_H, OF_FINDING, RETURNED_LATELY, RETURNED_SINCE, job_hazard
from remediator.model.records import JobRef, NodeRecord
from remediator.model.rules import NodeState
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind

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
    found = job_hazard("train", [of], {"n1": findings}, NOW)
    assert found is not None
    return found.per_s / USUAL


def test_a_job_fails_as_often_as_its_nodes_together() -> None:
    found = job_hazard("train", [node(f"n{i}") for i in range(128)], {}, NOW)
    assert found is not None
    assert (found.nodes, found.attempt, found.risks) == (128, 1, ())
    assert 1 / found.per_s == pytest.approx(NODE_MTBF_H * 3600 / 128)


def test_only_the_newest_attempt_counts_and_a_job_that_is_nowhere_has_none() -> None:
    nodes = [node("n1"), node("n2", attempt=2), node("n3", attempt=2)]
    found = job_hazard("train", nodes, {}, NOW)
    assert found is not None
    assert (found.nodes, found.attempt) == (2, 2)
    assert job_hazard("other", nodes, {}, NOW) is None
    assert job_hazard("train", [], {}, NOW) is None


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
    found = job_hazard("train", [back, node("n2")], {"n1": [finding(Severity.WARNING), finding(Severity.ERROR)]}, NOW)
    assert found is not None
    assert [(r.node, r.factor, r.why) for r in found.risks] == [("n1", OF_FINDING[Severity.ERROR], "xid/63 (error)")]
    assert found.per_s == pytest.approx((OF_FINDING[Severity.ERROR] + 1) * USUAL)


@given(st.lists(st.sampled_from(list(Severity)), max_size=6), st.floats(0, 1e9), st.sampled_from(list(NodeState)))
def test_no_history_makes_a_node_safer_than_usual(severities: list[Severity], since: float, state: NodeState) -> None:
    assert factor(node("n1", state=state, since=since), [finding(each) for each in severities]) >= 0.999
