"""The controller's own `/metrics`, from the published snapshot at scrape time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from remediator.api.fleet_metrics import collect_fleet_metrics
from remediator.api.handler_context import HandlerContext
from remediator.decisions.isolation_budget import level_max
from remediator.decisions.return_outcomes import WINDOWS, count_repeat_failures
from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.telemetry_cache import TelemetryCache
from remediator.model.journal_records import BREAKER
from remediator.model.rule_conditions import NodeState
from remediator.state.node_index import is_in_cluster

LEADING = "1 while this replica leads and may act, 0 on a standby or while the lease is in doubt."


class _ControllerCollector(Collector):
    def __init__(self, service: HandlerContext) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        engine = self._service.engine
        snapshot = engine.snapshot
        by_state = Counter(node.state for node in snapshot.nodes.values())
        nodes = GaugeMetricFamily("remediator_nodes", "Nodes by lifecycle state.", labels=["state"])
        for state in NodeState:
            nodes.add_metric([state.value], by_state[state])
        yield nodes
        yield GaugeMetricFamily(
            "remediator_isolated_nodes",
            "Nodes that the controller holds out of service.",
            sum(n.held for n in snapshot.nodes.values()),
        )
        yield GaugeMetricFamily(
            "remediator_isolated_nodes_limit",
            "Most nodes that the budget allows to be held.",
            level_max(engine.settings.budget, sum(map(is_in_cluster, snapshot.nodes.values()))),
        )
        yield GaugeMetricFamily("remediator_incidents_open", "Open incidents.", len(snapshot.incidents))
        yield GaugeMetricFamily(
            "remediator_actions_open",
            "Actions planned but not finished.",
            sum(not a.state.final for a in snapshot.actions.values()),
        )
        now = self._service.clock.wall()
        yield from _return_metrics(snapshot, now)
        yield from collect_fleet_metrics(engine, self._service.report_registry.entries(), now)
        yield GaugeMetricFamily("remediator_leading", LEADING, float(engine.may_act()))
        yield GaugeMetricFamily("remediator_epoch", "Epoch of this leader.", engine.epoch)
        yield GaugeMetricFamily(
            "remediator_store_writable", "1 while the database is writable.", float(not engine.trouble)
        )
        yield GaugeMetricFamily(
            "remediator_batch_age_seconds", "Age of the batch that is being processed and written.", engine.batch_age_s
        )
        yield GaugeMetricFamily(
            "remediator_inputs_set_aside", "Inputs whose results the database refuses.", engine.set_aside
        )
        performer = self._service.performer
        text = "1 while the scheduler answers for no node."
        yield GaugeMetricFamily("remediator_scheduler_failing", text, float(performer.scheduler_failing))
        text = "Delivery attempts to a receiver, by result, since this leader started."
        told = CounterMetricFamily("remediator_messages", text, labels=["receiver", "result"])
        for receiver, counts in performer.delivery_counts().items():
            for result, count in counts.items():
                told.add_metric([receiver, result], count)
        yield told
        text = "1 while a periodic check (silent nodes, node placement) fails."
        failing = GaugeMetricFamily("remediator_lookout_failing", text, labels=["part"])
        for part, fails in self._service.fleet_observer.failing.items():
            failing.add_metric([part], float(fails))
        yield failing
        text = "Failed analyses across nodes, since this leader started."
        faults = CounterMetricFamily("remediator_watch_faults", text, labels=["part"])
        for part, times in self._service.watch_faults.items():
            faults.add_metric([part], times)
        yield faults
        yield from _telemetry_metrics(self._service.telemetry)
        yield self._service.report_times.family()
        yield self._service.loop_lag.family()


def _telemetry_metrics(telemetry: TelemetryCache) -> Iterator[Metric]:
    yield GaugeMetricFamily("remediator_telemetry_nodes", "Nodes whose last hour of telemetry is kept.", len(telemetry))
    text = "Telemetry parts of reports that were dropped."
    dropped = CounterMetricFamily("remediator_telemetry_dropped", text, labels=["why"])
    for why, times in sorted(telemetry.dropped.items()):
        dropped.add_metric([why], times)
    yield dropped


def _return_metrics(snapshot: StateSnapshot, now: float) -> Iterator[Metric]:
    text = "Nodes returned to service in the last eight weeks and observed for the whole window."
    total = GaugeMetricFamily("remediator_returns", text, labels=["window"])
    again = GaugeMetricFamily(
        "remediator_returns_failed_again", "Those of them that failed within the window.", labels=["window"]
    )
    for window, within_s in WINDOWS.items():
        failed, watched = count_repeat_failures(snapshot.nodes.values(), within_s, now)
        total.add_metric([window], watched)
        again.add_metric([window], failed)
    yield total
    yield again
    is_open = any(i.node == BREAKER for i in snapshot.incidents.values())
    yield GaugeMetricFamily(
        "remediator_breaker_open", "1 while the breaker is open and no further node is isolated.", float(is_open)
    )


def render_metrics(service: HandlerContext) -> bytes:
    """Return the page in Prometheus text format."""
    registry = CollectorRegistry()
    registry.register(_ControllerCollector(service))
    return generate_latest(registry) + generate_latest(service.engine.counters)


class _StandbyCollector(Collector):
    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("remediator_leading", LEADING, 0.0)


def render_standby_metrics() -> bytes:
    """Return the page of a standby replica."""
    registry = CollectorRegistry()
    registry.register(_StandbyCollector())
    return generate_latest(registry)
