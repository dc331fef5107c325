"""The very first Xid, preflight, decision and action is seen: real pages, the boards' own queries, a real promtool."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from healthd.daemon_status import Status
from healthd.exporter.event_metrics import list_critical_xids
from healthd.exporter.metrics_page import make_page_renderer
from healthd.findings.event_counters import EventCounters
from healthd.findings.facts import Raise, make_gpu_component
from healthd.preflight_reports.preflight_history import PreflightHistory
from healthd.samples.preflight import PreflightSample
from remediator.engine.term_counters import TermCounters
from remediator.model.journal_records import Action, ActionState, Answer, AuditEvent, Decision
from remediator.state.state_changes import StateChanges
from tests.unit.dashboards.test_rules import run
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.finding import Severity
from vocabulary.messages.wire import Gpu

GRAFANA = Path(__file__).parents[3] / "dashboards/grafana"
GPUS = tuple(Gpu(index=number, uuid=f"GPU-{number}", pci=f"0000:1{number}:00.0") for number in range(8))
Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(page: str) -> Samples:
    families = text_string_to_metric_families(page)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def node_page(*, xid: str = "", preflight: bool = False) -> Samples:
    events, preflights = EventCounters(), PreflightHistory()
    if xid:
        fact = Raise(
            check="xid",
            code=xid,
            component=make_gpu_component(GPUS[3]),
            severity=Severity.FATAL,
            summary="",
            at=1.0,
            event=True,
        )
        events.add(fact)
    if preflight:
        preflights.told(PreflightSample(level="gate", verdict="fail", started_at=1.0), 2.0)
    status = replace(Status(node="n1", boot_id="b", at=1.0), gpus=GPUS, events=events.rows, preflights=preflights.seen)
    codes = list_critical_xids(load_catalogue())
    return samples(make_page_renderer(lambda: status, lambda: 0, critical_xids=codes)("")[1].decode())


def centre_page(*, decided: bool = False) -> Samples:
    tally = TermCounters()
    tally.expect(["gpu-lost", "row-remap"])
    if decided:
        opened = AuditEvent(at=1.0, kind="incident_opened", text="…")
        decision = Decision(id="d", incident="i", node="n", at=1.0, answer=Answer.ACT, rule="gpu-lost", reason="…", policy="p", findings=())  # fmt: skip
        action = Action(id="a", incident="i", decision="d", node="n", verb="cordon", planned_at=1.0, deadline=9.0, state=ActionState.SUCCEEDED, finished_at=2.0)  # fmt: skip
        tally.count(StateChanges(audit=[opened], decisions={"d": decision}, actions={"a": action}))
    return samples(generate_latest(tally.registry).decode())


def queries(board: str, metric: str) -> list[str]:
    """The queries of a board that ask how much a counter grew, for all that its variables may name."""
    document = (GRAFANA / f"{board}.json").read_text()
    found = [json.loads(f'"{text}"') for text in re.findall(r'"expr": "((?:[^"\\]|\\.)*)"', document)]
    wanted = [query for query in found if f"increase({metric}" in query]
    assert wanted, f"no query of {board} asks how much {metric} grew"
    return [re.sub(r'\w+=~"\$\w+",? ?', "", query).replace(",}", "}") for query in wanted]


def grew(place: Path, query: str, before: Samples, after: Samples) -> bool:
    """Whether the query shows more than nothing once `before` has become `after`, as promtool evaluates it."""
    series = [
        {
            "series": f"{name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in (('cluster', 'a'), *labels))}}}",
            "values": f"{before[name, labels]:g}x30 {value:g}x30" if (name, labels) in before else f"_x30 {value:g}x30",
        }
        for (name, labels), value in after.items()
        if name.endswith("_total")
    ]
    case = {"expr": f"count({query} > 0)", "eval_time": "45m", "exp_samples": [{"labels": "{}", "value": 1}]}
    rules = place / "first.yaml"
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": [case]}]
    rules.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": tests}))
    run("promtool", "test", "rules", str(rules))
    return True


@pytest.mark.parametrize("board", ["node", "fleet"])
@pytest.mark.parametrize("code", ["79", "31", "999"])  # grave, an application's, and one that nobody knows
def test_the_first_xid_is_plotted_with_its_code(tmp_path: Path, board: str, code: str) -> None:
    (query,) = queries(board, "healthd_xids_total")
    assert grew(tmp_path, query, node_page(), node_page(xid=code))


@pytest.mark.parametrize("board", ["node", "fleet"])
@pytest.mark.parametrize("code", ["79", "31", "999"])  # grave, an application's, and one that nobody knows
def test_the_first_xid_of_any_code_is_plotted(tmp_path: Path, board: str, code: str) -> None:
    (query,) = queries(board, "healthd_gpu_xids_total")
    assert grew(tmp_path, query, node_page(), node_page(xid=code))


def test_the_first_preflight_is_plotted(tmp_path: Path) -> None:
    (query,) = queries("preflight", "healthd_preflights_total")
    assert grew(tmp_path, query, node_page(), node_page(preflight=True))


@pytest.mark.parametrize(
    ("board", "metric"),
    [
        ("remediation", "remediator_decisions_total"),
        ("remediation", "remediator_actions_ended_total"),
        ("capacity", "remediator_audit_events_total"),
    ],
)
def test_the_first_deed_of_the_centre_is_plotted(tmp_path: Path, board: str, metric: str) -> None:
    (query,) = queries(board, metric)
    assert grew(tmp_path, query, centre_page(), centre_page(decided=True))


def test_a_counter_for_each_gpu_and_grave_code_is_all_that_this_costs() -> None:
    before = [name for name, _ in node_page() if name == "healthd_xids_total"]
    assert len(before) == len(GPUS) * len(list_critical_xids(load_catalogue()))
    assert len(list_critical_xids(load_catalogue())) < 60


def test_what_was_counted_stands_beside_the_zeros() -> None:
    page = node_page(xid="79")
    label = ("code", "79")
    counted = {
        labels: value for (name, labels), value in page.items() if name == "healthd_xids_total" and label in labels
    }
    assert sorted(counted.values()) == [0.0] * 7 + [1.0]
