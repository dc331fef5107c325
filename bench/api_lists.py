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

from remediator.api import render_overview
from remediator.api.lists import awaiting_views
from remediator.api.render import node_list
from remediator.api.render_jobs import NOWHERE, gpus, job, jobs
from remediator.api.render_status import status_view
from remediator.api.render_watch import lemons, stragglers
from remediator.decide.budget import Budget
from remediator.decide.settings import Settings
from remediator.engine import Snapshot
from remediator.model.plan import Mode
from remediator.model.records import Answer, Incident, JobRef, NodeRecord
from remediator.model.views_jobs import GpuList, JobList
from remediator.model.views_overview import OverviewView
from remediator.model.views_watch import LemonList, StragglerList
from remediator.playbook.load import SHIPPED, load_policy
from remediator.roster import Roster
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.wire import Gpu, RankStatus, Report

NOW = 1_700_000_000.0
GPUS = 8
TIMES = 7
TARGET_MS = 50.0


def fleet(nodes: int) -> tuple[Snapshot, Roster]:
    """A fleet at work."""
    roster, records, findings = Roster(), {}, {}
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
        roster.take(said, NOW)
        records[name] = NodeRecord(node=name, jobs=(JobRef(named, 1),))
        for i in range(2 if n % 10 == 0 else 0):
            found = _finding(name, Component(ComponentKind.GPU, f"GPU-{n}-{i}"))
            findings[found.id] = found
    return Snapshot(nodes=records, findings=findings, incidents={}, actions={}, holds={}), roster


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


def with_incidents(snapshot: Snapshot, count: int) -> Snapshot:
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


def overview(settings: Settings, snapshot: Snapshot, roster: Roster) -> OverviewView:
    """What `GET /v1/overview` makes of it, but for what it asks the database."""
    rules = settings.policy.by_name
    seen = status_view("c", "1", settings, snapshot, roster, NOW)
    incidents = render_overview.worst_first(snapshot)
    told = incidents[:20]
    return OverviewView(
        **asdict(msgspec.structs.replace(seen, blocked=tuple(render_overview.in_order(seen.blocked, incidents)))),
        incidents=render_overview.told_incidents(told, snapshot, {}, rules),
        nodes=render_overview.nodes_of(told, snapshot, roster, NOW),
        awaiting=tuple(awaiting_views(snapshot, rules, lambda _: {})),
        cordoned=render_overview.cordoned(snapshot),
        untended=render_overview.untended(snapshot, roster, NOW),
        heard=render_overview.heard(snapshot, roster, NOW),
    )


def _told(settings: Settings, snapshot: Snapshot, roster: Roster) -> bytes:
    return msgspec.json.encode(overview(settings, snapshot, roster))


def main() -> int:
    """Measure every list and print a table."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 12_500
    snapshot, roster = fleet(nodes)
    settings = Settings(load_policy([SHIPPED]), Mode.ACT, Budget())
    encode = msgspec.json.encode
    asked: dict[str, Callable[[], bytes]] = {
        "status": lambda: encode(status_view("c", "1", settings, snapshot, roster, NOW)),
        **{
            f"overview, {count} open": partial(_told, settings, with_incidents(snapshot, count), roster)
            for count in (0, 30, 600)
        },
        "jobs": lambda: encode(JobList(NOW, jobs(snapshot, roster))),
        "jobs/wide": lambda: encode(job(snapshot, roster, "wide")),
        "gpus?limit=1000": lambda: encode(GpuList(NOW, gpus(snapshot, roster, NOW, "*", NOWHERE, 1000))),
        "gpus?node=gpu-*99": lambda: encode(GpuList(NOW, gpus(snapshot, roster, NOW, "gpu-*99", NOWHERE, 1000))),
        "nodes?limit=1000": lambda: encode(node_list(snapshot, roster, NOW, "", 1000)),
        "lemons": lambda: encode(LemonList(lemons(snapshot))),
        "stragglers": lambda: encode(StragglerList(stragglers(snapshot, roster))),
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
