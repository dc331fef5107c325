"""What pages and commands list, over HTTP and from records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remediator.api.job_views import NOWHERE, SWAPS_LISTED, find_job_view, list_gpu_views, list_job_views, parse_gpu_key
from remediator.api.list_handlers import list_lemon_views, list_straggler_views
from remediator.decisions.budget_usage import describe_budget_limits
from remediator.decisions.isolation_budget import IsolationBudget
from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.journal_records import Incident, JobRef, NodeRecord
from remediator.model.plan_steps import Mode
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import finding, report
from vocabulary.finding import Evidence, Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.swap_messages import JobSwap
from vocabulary.messages.wire import Gpu, RankStatus, Report

NOW = 1_700_000_000.0


def rank(job: str, number: int, **more: Any) -> RankStatus:
    told: dict[str, Any] = {"step": 7, "phase": "forward", "at": NOW, "step_median": 1.0, "gpu": f"GPU-{number}"} | more
    return RankStatus(job=job, attempt=told.pop("attempt", 1), rank=number, world=4, pid=1, **told)


def heard(nodes: dict[str, tuple[RankStatus, ...]], at: float = NOW) -> ReportRegistry:
    report_registry = ReportRegistry()
    for name, ranks in nodes.items():
        devices = tuple(Gpu(each, f"GPU-{rank.rank}", f"0000:{each:02x}:00.0") for each, rank in enumerate(ranks))
        said = Report(
            version=1,
            node=name,
            boot_id="b",
            agent="a",
            seq=1,
            sent_at=at,
            ttl_s=30.0,
            health=Health.HEALTHY,
            gpus=devices,
            ranks=ranks,
        )
        report_registry.take(said, at)
    return report_registry


def launched(report_registry: ReportRegistry, node: str, *swaps: JobSwap) -> None:
    """A node without ranks, on which launchers run."""
    said = Report(
        version=1, node=node, boot_id="b", agent="a", seq=1, sent_at=NOW, ttl_s=30.0, health=Health.HEALTHY, swaps=swaps
    )
    report_registry.take(said, NOW)


def snapshot(report_registry: ReportRegistry, *findings: Finding) -> StateSnapshot:
    nodes = {e.node: NodeRecord(node=e.node, jobs=e.jobs) for e in report_registry.entries()}
    return StateSnapshot(nodes=nodes, findings={f.id: f for f in findings}, incidents={}, actions={}, holds={})


def fact(node: str, check: str, about: Component, origin: str = "b:1", evidence: Evidence | None = None) -> Finding:
    return Finding(
        id=finding_id(node, check, "x", about, origin),
        node=node,
        check=check,
        code="x",
        component=about,
        severity=Severity.ERROR,
        summary=f"{check} was seen",
        first_seen=NOW - 60,
        last_seen=NOW,
        origin=origin,
        evidence=evidence or {},
    )


def test_a_job_is_told_from_its_living_ranks_of_the_newest_attempt() -> None:
    report_registry = heard(
        {
            "n1": (rank("a/1", 0), rank("a/1", 1, step=8, phase="backward", step_median=3.0)),
            "n2": (rank("a/1", 2, phase="backward", step_median=2.0), rank("a/1", 3, alive=False, step=99)),
            "n3": (rank("a/1", 0, attempt=0, step=5), rank("b", 0, step_median=0.0, step_seconds=4.0)),
        }
    )
    of_rank = fact("n3", "training", Component(ComponentKind.RANK, "b.1"))
    slow = fact("n1", "straggler", Component(ComponentKind.HOST), "centre:straggler:a/1.1", {"job": "a/1"})
    one, other = list_job_views(snapshot(report_registry, of_rank, slow), report_registry)
    assert (one.job, one.attempt, one.world, one.ranks_told, one.nodes) == ("a/1", 1, 4, 3, ("n1", "n2"))
    assert (one.step, one.step_s, one.phase, one.at, one.ranks) == (8, 2.0, "backward", NOW, ())
    assert one.verdicts == ("straggler was seen",)
    assert [f.check for f in one.findings] == ["straggler"]
    assert (other.job, other.step_s, [f.check for f in other.findings]) == ("b", 4.0, ["training"])
    whole = find_job_view(snapshot(report_registry, slow), report_registry, "a/1")
    assert whole is not None
    assert [(each.node, each.status.rank) for each in whole.ranks] == [("n1", 0), ("n1", 1), ("n2", 2), ("n2", 3)]
    assert replace(whole, ranks=()) == one
    assert find_job_view(snapshot(report_registry), report_registry, "c") is None


def test_a_new_leader_names_a_jobs_nodes_before_they_report() -> None:
    known = StateSnapshot(
        nodes={"n1": NodeRecord(node="n1", jobs=(JobRef("a", 2),))}, findings={}, incidents={}, actions={}, holds={}
    )
    (found,) = list_job_views(known, ReportRegistry())
    assert (found.job, found.attempt, found.nodes, found.ranks_told, found.step) == ("a", 2, ("n1",), 0, -1)
    assert find_job_view(known, ReportRegistry(), "a") == found


def test_a_gpu_has_its_own_findings_its_rank_and_is_unknown_in_silence() -> None:
    report_registry = heard({"n1": (rank("a", 0), rank("a", 1))})
    by_name = fact("n1", "xid", Component(ComponentKind.GPU, "GPU-1"))
    by_both = fact("n1", "ecc", Component(ComponentKind.GPU, "GPU-1", "0000:01:00.0", 1))
    elsewhere = fact("n2", "xid", Component(ComponentKind.GPU, "GPU-0"))
    known = snapshot(report_registry, by_name, by_both, elsewhere)
    first, second = list_gpu_views(known, report_registry, NOW, limit=9)
    assert (first.health, first.findings, first.job, first.rank) == ("healthy", (), "a", 0)
    assert (second.health, second.rank) == ("unhealthy", 1)
    assert set(second.findings) == {"xid/x: xid was seen", "ecc/x: ecc was seen"}
    assert [each.health for each in list_gpu_views(known, report_registry, NOW + 31, limit=9)] == [
        "unknown",
        "unhealthy",
    ]


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(1, 4))
def test_pages_of_gpus_are_the_whole_list_in_pieces(counts: list[int], limit: int) -> None:
    report_registry = heard(
        {f"n{n}": tuple(rank("a", each) for each in range(count)) for n, count in enumerate(counts)}
    )
    known, after, found = snapshot(report_registry), NOWHERE, []
    while page := list_gpu_views(known, report_registry, NOW, "*", after, limit):
        assert len(page) <= limit
        found += page
        after = parse_gpu_key(f"{page[-1].node}/{page[-1].index}")
    assert tuple(found) == list_gpu_views(known, report_registry, NOW, limit=10**6)
    assert len(found) == sum(counts)


def test_lemons_and_stragglers_are_the_centres_own_findings() -> None:
    report_registry = heard({"n1": (rank("a", 0, pipeline_stage=3),), "n2": (rank("a", 1),)})
    host = Component(ComponentKind.HOST)
    told: Evidence = {"job": "a", "attempt": 1, "ranks": "0, 2", "slowdown": 0.25, "confidence": 0.9}
    slow = fact("n1", "straggler", host, "centre:straggler:a.1", told)
    nobody = fact("n2", "straggler", Component(ComponentKind.RANK, "a.1"), "centre:straggler:a.1", {"job": "a"})
    past: Evidence = {"probability": 0.8, "incidents": 3, "service_d": 2.0, "advice": "test"}
    lemon = fact("n2", "lemon", host, "centre:lemon", past)
    said_by_a_node = fact("n1", "lemon", host, "b:1", past)
    known = snapshot(report_registry, slow, nobody, lemon, said_by_a_node)
    about = Incident(id="inc-1", node="n1", title="t", opened_at=NOW, findings=(slow.id,))
    first, second = list_straggler_views(replace(known, incidents={about.id: about}), report_registry)
    assert (first.incident, second.incident) == ("inc-1", "")
    assert (first.node, first.rank, first.ranks, first.stage, first.excess) == ("n1", 0, (0, 2), 3, 0.25)
    assert (second.node, second.rank, second.stage) == ("", None, None)
    (found,) = list_lemon_views(known)
    assert (found.node, found.score, found.failures, found.hours, found.jobs) == ("n2", 0.8, 3, 48.0, ("a",))
    assert found.next_step == "run a preflight before its next job"


def test_every_limit_has_its_figures() -> None:
    said = describe_budget_limits(IsolationBudget(), 200, 2, (NOW - 4000, NOW - 90), {"cordon": 2}, NOW)
    assert said == (
        "level: 2 of at most 4 nodes isolated, of 200 in the cluster",
        "rate: 1 of at most 1 isolation in the last hour",
        "gap: at least 10 min between two isolations; the last was 1 min 30 s ago",
        "breaker: opens at 10 nodes isolated; now 2",
        "failures: cordon failed for 2 incidents in a row; the breaker opens at 3",
    )
    assert "none recently" in describe_budget_limits(IsolationBudget(), 1, 0, (), {}, NOW)[2]


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Inside]:
    centre = Inside(tmp_path, mode=Mode.APPROVE)
    told = report(
        findings=(finding("n1"),), ranks=(rank("a/b", 0, gpu="GPU-9"),), gpus=(Gpu(0, "GPU-9", "0000:3b:00.0"),)
    )
    assert centre.call("POST", "/v1/nodes/n1/report", "n1", told).status == 200
    yield centre
    centre.close()


def get(centre: Inside, path: str) -> Any:
    return centre.call("GET", path, "vic").json()


def test_the_lists_over_http(centre: Inside) -> None:
    assert [(g["node"], g["index"], g["job"], g["rank"]) for g in get(centre, "/v1/gpus")["gpus"]] == [
        ("n1", 0, "a/b", 0)
    ]
    assert get(centre, "/v1/gpus?node=n*&after=n1/0")["gpus"] == []
    assert [each["job"] for each in get(centre, "/v1/jobs")["jobs"]] == ["a/b"]
    assert [each["node"] for each in get(centre, "/v1/jobs/a/b")["ranks"]] == ["n1"]
    (awaited,) = get(centre, "/v1/awaiting")["awaiting"]
    assert (awaited["node"], awaited["what"]) == ("n1", f"{awaited['incident']}.d1")
    assert awaited["since"] > NOW
    assert ["drain"] in awaited["proposed"], "who says yes sees every step"
    assert get(centre, f"/v1/incidents/{awaited['incident']}")["proposed"] == awaited["proposed"]
    assert get(centre, "/v1/lemons") == {"lemons": []}
    assert get(centre, "/v1/stragglers") == {"stragglers": []}
    breaker = get(centre, "/v1/breaker")
    assert breaker["open"] is False
    assert len(breaker["limits"]) == 5
    past = get(centre, "/v1/nodes/n1/history")["events"]
    assert [e["seq"] for e in past] == sorted((e["seq"] for e in past), reverse=True)
    assert "node_joined" in [e["kind"] for e in past]
    assert {e["node"] for e in past} == {"n1"}
    assert len(get(centre, "/v1/nodes/n1/history?limit=1")["events"]) == 1
    assert get(centre, "/v1/actions") == {"actions": []}
    incident = awaited["incident"]
    assert centre.call("POST", f"/v1/incidents/{incident}/approve", "ann", {"what": awaited["what"]}).status == 204
    for state in ("all", "open", "ended"):
        for action in get(centre, f"/v1/actions?state={state}")["actions"]:
            assert action["incident"] == incident
    assert get(centre, "/v1/actions?state=all")["actions"]
    assert "proposed" not in get(centre, f"/v1/incidents/{incident}"), "it is a plan now"


def test_what_blocks_is_told_in_words(centre: Inside) -> None:
    found = get(centre, "/v1/status")
    assert "mode is approve: each plan needs approval" in found["blocked"]
    assert "epoch 1" in found["leader"]
    assert centre.call("POST", "/v1/nodes/n1/hold", "ann", {"text": "a fan"}).status == 204
    assert "operator hold on 1 node: n1" in get(centre, "/v1/status")["blocked"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/gpus?node=n2", 404),
        ("/v1/gpus?node=n*", 200),
        ("/v1/gpus?limit=0", 400),
        (f"/v1/gpus?node={'*a' * 200}", 400),
        ("/v1/gpus?after=n1/x", 400),
        ("/v1/jobs/none", 404),
        ("/v1/actions?state=odd", 400),
        ("/v1/actions?limit=1e9", 400),
        ("/v1/alerts?limit=x", 400),
        ("/v1/nodes/n9/history", 404),
    ],
)
def test_what_cannot_be_listed(centre: Inside, path: str, status: int) -> None:
    answer = centre.call("GET", path, "vic")
    assert answer.status == status
    assert status == 200 or answer.json()["error"]


def test_a_jobs_swaps_are_listed_once_newest_first_whoever_reports_them() -> None:
    def swap(job: str, at: float, attempt: int = 1) -> JobSwap:
        return JobSwap(job=job, attempt=attempt, at=at, outcome="swapped")

    report_registry = heard({"n1": (rank("a", 0),), "n2": (rank("b", 0),)})
    launched(report_registry, "n3", swap("a", 1.0), swap("b", 5.0), swap("ended", 6.0))
    launched(
        report_registry, "n4", swap("a", 1.0), swap("a", 3.0), swap("a", 3.0, attempt=2)
    )  # after a requeue to another node
    known = snapshot(report_registry)
    one, other = list_job_views(known, report_registry)
    assert [(each.swap.attempt, each.swap.at) for each in one.swaps] == [(1, 3.0), (2, 3.0), (1, 1.0)]
    assert [(each.node, each.swap.at) for each in other.swaps] == [("n3", 5.0)]
    whole = find_job_view(known, report_registry, "a")
    assert whole is not None
    assert whole.swaps == one.swaps
    assert find_job_view(known, report_registry, "ended") is None
    launched(report_registry, "n5", *(swap("b", float(at)) for at in range(100)))
    assert len(list_job_views(snapshot(report_registry), report_registry)[1].swaps) == SWAPS_LISTED
