"""The fleet on `/metrics`: isolated nodes and why, findings, and what awaits operators.

Only what is abnormal has a series of its own, at most `SHOWN_MAX` per kind, so that the page stays small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nlargest

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.isolation_budget import HOUR_S, rate_max
from remediator.engine.decision_engine import DecisionEngine, StateSnapshot
from remediator.fleet.report_registry import ReportEntry
from remediator.model.journal_records import Answer, Incident, IncidentState, NodeRecord
from remediator.model.plan_steps import Mode
from remediator.model.rule_conditions import NodeState
from remediator.overrides.cluster_overrides import effective_settings
from remediator.state.node_index import is_in_cluster
from vocabulary import VERSION
from vocabulary.finding import Finding
from vocabulary.health import Health

SHOWN_MAX = 1000  # incidents, nodes out of service, slow ranks: the newest
TITLE_MAX = 120  # characters
SLOWDOWN = "slowdown"  # evidence of a finding about a slow rank


def collect_fleet_metrics(engine: DecisionEngine, entries: Iterable[ReportEntry], now: float) -> Iterator[Metric]:
    """Return all metrics of one snapshot. `entries` are the nodes' last reports; `now` is in UTC seconds."""
    snapshot = engine.snapshot
    settings = effective_settings(snapshot.operator_overrides, engine.settings)
    yield InfoMetricFamily("remediator_build", "This controller.", value={"version": VERSION})
    mode = GaugeMetricFamily(
        "remediator_mode", "1 for the current mode of automation, 0 for the others.", labels=["mode"]
    )
    for each in Mode:
        mode.add_metric([each.value], float(settings.mode is each))
    yield mode
    yield GaugeMetricFamily("remediator_inputs_waiting", "Inputs not yet written.", engine.waiting)
    yield from _health_metrics(snapshot, entries, now)
    yield _unhealthy_node_metric(snapshot.nodes.values())
    yield from _incident_metrics(list(snapshot.incidents.values()))
    yield from _finding_metrics([finding for finding in snapshot.findings.values() if finding.active])
    yield from _isolation_rate_metrics(snapshot, settings, now)


def _health_metrics(snapshot: StateSnapshot, entries: Iterable[ReportEntry], now: float) -> Iterator[Metric]:
    healths: Counter[Health] = Counter()
    gpus: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        healths[entry.health_at(now)] += 1
        record = snapshot.nodes.get(entry.node)
        if record is not None and entry.gpus:
            gpus[entry.gpus[0].name, record.state.value] += len(entry.gpus)
    told = GaugeMetricFamily(
        "remediator_nodes_reporting", "Nodes by self-reported health; unknown: silent.", labels=["health"]
    )
    for health in Health:
        told.add_metric([health.value], healths[health])
    yield told
    family = GaugeMetricFamily(
        "remediator_gpus", "GPUs by product and by the state of their node.", labels=["product", "state"]
    )
    for product in sorted({product for product, _ in gpus}):
        for state in NodeState:
            family.add_metric([product, state.value], gpus[product, state.value])
    yield family


def _unhealthy_node_metric(nodes: Iterable[NodeRecord]) -> Metric:
    text = "Since when a node has been in a state that is not healthy."
    family = GaugeMetricFamily(
        "remediator_node_since_timestamp_seconds", text, labels=["node", "state", "held", "rack"]
    )
    out = (node for node in nodes if node.state is not NodeState.HEALTHY)
    for node in nlargest(SHOWN_MAX, out, key=lambda node: (node.since, node.node)):
        family.add_metric([node.node, node.state.value, _boolean_label(node.held), node.places.rack], node.since)
    return family


def _incident_metrics(incidents: list[Incident]) -> Iterator[Metric]:
    by_state = Counter(incident.state for incident in incidents)
    family = GaugeMetricFamily("remediator_incidents", "Open incidents by state.", labels=["state"])
    for state in IncidentState:
        if state is not IncidentState.CLOSED:
            family.add_metric([state.value], by_state[state])
    yield family
    by_answer = Counter(incident.answer for incident in incidents)
    family = GaugeMetricFamily(
        "remediator_incidents_answered", "Open incidents by the answer of the last decision.", labels=["answer"]
    )
    for answer in Answer:
        family.add_metric([answer.value], by_answer[answer])
    yield family
    text = "When an open incident was opened."
    labels = ["incident", "node", "title", "drill"]
    family = GaugeMetricFamily("remediator_incident_opened_timestamp_seconds", text, labels=labels)
    for each in nlargest(SHOWN_MAX, incidents, key=lambda incident: (incident.opened_at, incident.id)):
        family.add_metric([each.id, each.node, each.title[:TITLE_MAX], _boolean_label(each.injected)], each.opened_at)
    yield family


def _finding_metrics(findings: list[Finding]) -> Iterator[Metric]:
    counts = Counter((f.check, f.code, f.severity.value, _boolean_label(f.injected)) for f in findings)
    labels = ["check", "code", "severity", "drill"]
    family = GaugeMetricFamily("remediator_findings_active", "Active findings of all nodes.", labels=labels)
    for kind, count in sorted(counts.items()):
        family.add_metric(kind, count)
    yield family
    slow = [f for f in findings if isinstance(f.evidence.get(SLOWDOWN), float)]
    labels = ["node", "component", "job", "kind", "confirmed"]
    text = "How much slower a rank is than its peers; 0.3 is 30 %."
    family = GaugeMetricFamily("remediator_straggler_slowdown_ratio", text, labels=labels)
    rows: dict[tuple[str, ...], float] = {}  # two attempts of one job may report the same rank
    for each in nlargest(SHOWN_MAX, slow, key=lambda finding: (finding.last_seen, finding.id)):
        job, confirmed = (str(each.evidence.get(name, "")) for name in ("job", "confirmed"))
        names = (each.node, str(each.component), job, each.code, confirmed)
        rows.setdefault(names, float(each.evidence[SLOWDOWN]))
    for labelled, slowdown in rows.items():
        family.add_metric(labelled, slowdown)
    yield family


def _isolation_rate_metrics(snapshot: StateSnapshot, settings: DecisionSettings, now: float) -> Iterator[Metric]:
    recent = sum(n.isolated_at is not None and now - n.isolated_at < HOUR_S for n in snapshot.nodes.values())
    yield GaugeMetricFamily("remediator_isolations_last_hour", "Nodes isolated within the last hour.", recent)
    total = sum(map(is_in_cluster, snapshot.nodes.values()))
    yield GaugeMetricFamily(
        "remediator_isolations_last_hour_limit",
        "Most nodes that the budget allows to be isolated within an hour.",
        rate_max(settings.budget, total),
    )
    open_since = [action.planned_at for action in snapshot.actions.values() if not action.state.final]
    age_s = max(0.0, now - min(open_since)) if open_since else 0.0
    yield GaugeMetricFamily("remediator_oldest_action_seconds", "Age of the oldest unfinished action.", age_s)


def _boolean_label(truth: bool) -> str:  # noqa: FBT001 - a truth to be spelt
    return "true" if truth else "false"
