"""CPU time of what pages and commands list, for a whole fleet: from the committed state to the bytes that are sent.

    python bench/api_lists.py [NODES]

8 GPUs and 8 ranks a node, one job on a sixth of the nodes and jobs of 100 nodes on the rest, 2 findings on each tenth node. No database, no
network, one process. The target is 50 ms for each list; exit status 1 where one takes longer.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec.structs import asdict

from remediator.api import overview_views
from remediator.api.job_views import NOWHERE, find_job_view, list_gpu_views, list_job_views
from remediator.api.list_handlers import awaiting_views, list_lemon_views, list_straggler_views
from remediator.api.record_views import node_list_view
from remediator.api.status_views import status_view
from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.isolation_budget import IsolationBudget
from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.journal_records import Answer, Incident, JobRef, NodeRecord
from remediator.model.plan_steps import Mode
from remediator.model.views_detectors import LemonList, StragglerList
from remediator.model.views_jobs import GpuList, JobList
from remediator.model.views_overview import OverviewView
from remediator.playbook.playbook_loader import SHIPPED, load_policy
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import Gpu, RankStatus, Report

NOW = 1_700_000_000.0
GPUS = 8
TIMES = 7
TARGET_MS = 50.0


def build_fleet(nodes: int) -> tuple[StateSnapshot, ReportRegistry]:
    """A fleet at work."""
    registry, records, findings = ReportRegistry(), {}, {}
    for n in range(nodes):
        name, named = f"gpu-{n:05d}", "wide" if n < nodes // 6 else f"job-{n // 100}"
        ranks = tuple(
            RankStatus(named, 1, n * GPUS + i, nodes * GPUS, 1, 500 + i % 2, "forward", NOW, step_median=1.0 + i / 100)
            for i in range(GPUS)
        )
        devices = tuple(Gpu(i, f"GPU-{n}-{i}", f"0000:{i:02x}:00.0", "H100", "1") for i in range(GPUS))
        said = Report(
            version=1,
            node=name,
            boot_id="b",
            agent="a",
            seq=1,
            sent_at=NOW,
            ttl_s=30.0,
            health=Health.HEALTHY,
            gpus=devices,
            ranks=ranks,
        )
        registry.take(said, NOW)
        records[name] = NodeRecord(node=name, jobs=(JobRef(named, 1),))
        for i in range(2 if n % 10 == 0 else 0):
            found = _finding(name, Component(ComponentKind.GPU, f"GPU-{n}-{i}"))
            findings[found.id] = found
    return StateSnapshot(nodes=records, findings=findings, incidents={}, actions={}, holds={}), registry


def _finding(node: str, about: Component) -> Finding:
    return Finding(
        id=finding_id(node, "xid", "63", about, "b:1"),
        node=node,
        check="xid",
        code="63",
        component=about,
        severity=Severity.WARNING,
        summary="a row was remapped",
        first_seen=NOW,
        last_seen=NOW,
        origin="b:1",
    )


def with_incidents(snapshot: StateSnapshot, count: int) -> StateSnapshot:
    """So many of the nodes with an open incident each, which waits for a person's yes."""
    names = list(snapshot.nodes)[:: max(1, len(snapshot.nodes) // max(1, count))][:count]
    found = [_finding(name, Component(ComponentKind.HOST)) for name in names]
    incidents = {
        f"inc-{n:04}": Incident(
            id=f"inc-{n:04}",
            node=fact.node,
            title="a row was remapped",
            opened_at=NOW - n,
            findings=(fact.id,),
            rule="error",
            answer=Answer.APPROVE,
            decisions=1,
        )
        for n, fact in enumerate(found)
    }
    facts = snapshot.findings | {fact.id: fact for fact in found}
    return msgspec.structs.replace(snapshot, incidents=incidents, findings=facts)


def build_overview(settings: DecisionSettings, snapshot: StateSnapshot, registry: ReportRegistry) -> OverviewView:
    """What `GET /v1/overview` makes of it, but for what it asks the database."""
    rules = settings.policy.by_name
    seen = status_view("c", "1", settings, snapshot, registry, NOW)
    incidents = overview_views.order_worst_incidents(snapshot)
    told = incidents[:20]
    return OverviewView(
        **asdict(
            msgspec.structs.replace(seen, blocked=tuple(overview_views.order_blocked_reasons(seen.blocked, incidents)))
        ),
        incidents=overview_views.incident_overviews(told, snapshot, {}, rules),
        nodes=overview_views.incident_node_views(told, snapshot, registry, NOW),
        awaiting=tuple(awaiting_views(snapshot, rules, lambda _: {})),
        cordoned=overview_views.operator_cordoned_nodes(snapshot),
        untended=overview_views.unhealthy_unassigned_nodes(snapshot, registry, NOW),
        heard=overview_views.report_freshness_view(snapshot, registry, NOW),
    )


def _told(settings: DecisionSettings, snapshot: StateSnapshot, registry: ReportRegistry) -> bytes:
    return msgspec.json.encode(build_overview(settings, snapshot, registry))


def main() -> int:
    """Measure every list and print a table."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 12_500
    snapshot, registry = build_fleet(nodes)
    settings = DecisionSettings(load_policy([SHIPPED]), Mode.ACT, IsolationBudget())
    encode = msgspec.json.encode
    asked: dict[str, Callable[[], bytes]] = {
        "status": lambda: encode(status_view("c", "1", settings, snapshot, registry, NOW)),
        **{
            f"overview, {count} open": partial(_told, settings, with_incidents(snapshot, count), registry)
            for count in (0, 30, 600)
        },
        "jobs": lambda: encode(JobList(NOW, list_job_views(snapshot, registry))),
        "jobs/wide": lambda: encode(find_job_view(snapshot, registry, "wide")),
        "gpus?limit=1000": lambda: encode(GpuList(NOW, list_gpu_views(snapshot, registry, NOW, "*", NOWHERE, 1000))),
        "gpus?node=gpu-*99": lambda: encode(
            GpuList(NOW, list_gpu_views(snapshot, registry, NOW, "gpu-*99", NOWHERE, 1000))
        ),
        "nodes?limit=1000": lambda: encode(node_list_view(snapshot, registry, NOW, "", 1000)),
        "lemons": lambda: encode(LemonList(list_lemon_views(snapshot))),
        "stragglers": lambda: encode(StragglerList(list_straggler_views(snapshot, registry))),
    }
    print(f"{nodes} nodes, {nodes * GPUS} ranks, {len(snapshot.findings)} findings; CPU time, median of {TIMES}")
    slowest = 0.0
    for name, ask in asked.items():
        spent = []
        for _ in range(TIMES):
            begun = time.process_time()
            size = len(ask())
            spent.append(1000 * (time.process_time() - begun))
        slowest = max(slowest, statistics.median(spent))
        print(f"{name:20} {statistics.median(spent):7.1f} ms {size / 1024:9.0f} KiB")
    return int(slowest > TARGET_MS)


if __name__ == "__main__":
    sys.exit(main())
