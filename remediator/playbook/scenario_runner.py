"""Runs scenarios through the real pipeline, against a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from remediator.decisions.approval import list_awaited_approvals
from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.isolation_budget import level_only_budget
from remediator.decisions.policy import Policy
from remediator.model.journal_records import Answer, JobRef
from remediator.model.pipeline_inputs import (
    AnyInput,
    FindingsReported,
    HoldsObserved,
    InventoryChanged,
    PlacementChanged,
    StepApproved,
)
from remediator.model.rule_conditions import DAY_S
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.playbook.scenario_document import Event, Expected, Scenario, ScenarioDocument
from remediator.playbook.yaml_source import YamlSource, read_yaml_record
from remediator.replay.simulated_cluster import AnswerScript, SimulatedCluster
from vocabulary.fault_catalogue.catalogue import Catalogue
from vocabulary.finding import Evidence, Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind

SUFFIX = ".scenarios.yaml"
START = 1_000_000.0  # scenarios begin at second 0; the pipeline needs a time other than 0


class ScenarioResult(msgspec.Struct, frozen=True):
    """The result of one scenario; without problems, all expectations were met."""

    name: str
    place: str
    problems: tuple[str, ...]
    rules: tuple[str, ...]  # that decided, for coverage


def scenario_path(playbook: Path) -> Path:
    """Return the path of a playbook's scenarios."""
    return playbook.with_name(playbook.stem + SUFFIX)


def run_scenario_file(path: Path, policy: Policy, catalogue: Catalogue) -> Iterator[ScenarioResult]:
    """Run every scenario of a file under a policy.

    Raises:
        PolicyError: the file cannot be read, or is no valid scenario file.
    """
    text: YamlSource[ScenarioDocument] = read_yaml_record(path, ScenarioDocument)
    for i, scenario in enumerate(text.record.scenarios):
        yield run_scenario(scenario, policy, catalogue, text.place("scenarios", i))


def run_scenario(scenario: Scenario, policy: Policy, catalogue: Catalogue, place: str = "") -> ScenarioResult:
    """Run one scenario."""
    budget = level_only_budget(scenario.isolated_max)
    settings = DecisionSettings(policy=policy, mode=scenario.mode, budget=budget, probation_s=DAY_S)
    rehearsal = SimulatedCluster(settings, AnswerScript(answers=dict(scenario.answers)))
    rehearsal.now = START
    for item in _initial_inputs(scenario):
        rehearsal.submit(item)
    placed = dict(scenario.jobs)
    for number, event in enumerate(sorted(scenario.given, key=lambda e: e.at)):
        rehearsal.run(START + event.at)
        for item in _event_inputs(event, number, rehearsal, placed, catalogue):
            rehearsal.submit(item)
    rehearsal.run(START + scenario.until)
    rules = tuple(decision.rule for decision in rehearsal.decisions.values())
    return ScenarioResult(scenario.name, place, tuple(_unmet_expectations(scenario.expect, rehearsal)), rules)


def _initial_inputs(scenario: Scenario) -> Iterator[AnyInput]:
    for number in range(1, scenario.nodes + 1):
        node = f"n{number}"
        yield FindingsReported(at=START, node=node, boot_id="", active=())
        yield InventoryChanged(at=START, node=node, products=(scenario.gpu,))
        yield _placement_input(node, scenario.jobs, START)
    in_service = tuple(SchedulerNodeState(f"n{number}", schedulable=True) for number in range(1, scenario.nodes + 1))
    yield HoldsObserved(at=START, holds=in_service)


def _placement_input(node: str, placed: dict[str, tuple[str, ...]], at: float) -> PlacementChanged:
    jobs = tuple(JobRef(job, 0) for job, nodes in sorted(placed.items()) if node in nodes)
    return PlacementChanged(at=at, node=node, jobs=jobs)


def _event_inputs(
    event: Event, number: int, rehearsal: SimulatedCluster, placed: dict[str, tuple[str, ...]], catalogue: Catalogue
) -> Iterator[AnyInput]:
    at = rehearsal.now
    if event.finding:
        finding = _scenario_finding(event, number, at, catalogue)
        yield FindingsReported(at=at, node=event.node, boot_id="", changes=(finding,))
    if event.clear:
        over = tuple(f.cleared(at, "scenario") for f in rehearsal.state.active_on(event.node) if f.kind == event.clear)
        yield FindingsReported(at=at, node=event.node, boot_id="", changes=over)
    if event.job:
        before = placed.get(event.job, ())
        placed[event.job] = event.nodes
        for node in sorted({*before, *event.nodes}):
            yield _placement_input(node, placed, at)
    if event.operator:
        holds = event.operator == "holds"
        owner = HoldOwner.OPERATOR if holds else HoldOwner.NOBODY
        yield HoldsObserved(
            at=at, holds=(SchedulerNodeState(event.node, schedulable=not holds, drained=holds, owner=owner),)
        )
    incident = rehearsal.state.incident_of(event.node)
    if event.approve and incident is not None:
        for awaited in list_awaited_approvals(incident)[:1]:
            yield StepApproved(at=at, incident=incident.id, what=awaited.id, actor="scenario")


def _scenario_finding(event: Event, number: int, at: float, catalogue: Catalogue) -> Finding:
    check, _, code = event.finding.partition("/")
    component = _parse_component(event.component)
    severity = event.severity or _finding_severity(check, code, catalogue)
    evidence: Evidence = dict(event.evidence)
    return Finding(
        id=finding_id(event.node, check, code, component, str(number)),
        node=event.node,
        check=check,
        code=code,
        component=component,
        severity=severity,
        summary=event.finding,
        first_seen=at,
        last_seen=at,
        origin=str(number),
        count=event.count,
        active=severity is not Severity.INFO,
        evidence=evidence,
    )


def _finding_severity(check: str, code: str, catalogue: Catalogue) -> Severity:
    if check == "xid":
        number = 79 if code == "fallen_off_bus" else int(code) if code.isdecimal() else 0
        return catalogue.entry(number).severity
    if check == "sxid" and code.isdecimal():
        return catalogue.sxid_entry(int(code)).severity
    return Severity.UNCLASSIFIED


def _parse_component(text: str) -> Component:
    name = text.rstrip("0123456789")
    kind = ComponentKind(name) if name in set(ComponentKind) else ComponentKind.HOST
    number = text[len(name) :]
    return Component(kind, name=number and text, index=int(number) if number else None)


def _unmet_expectations(expect: Expected, rehearsal: SimulatedCluster) -> Iterator[str]:
    for node, wanted in expect.decisions.items():
        found = [(d.rule, d.answer.value) for d in rehearsal.decisions.values() if d.node == node]
        due = [(w, Answer.ACT.value) if isinstance(w, str) else (w.rule, w.answer.value) for w in wanted]
        if found != due:
            yield f"{node}: decided {_format_decisions(found)}, expected {_format_decisions(due)}"
    for node, steps in expect.steps.items():
        begun = [
            o.kind.removeprefix("action/")
            for o in rehearsal.occurrences
            if o.node == node and o.kind.startswith("action/")
        ]
        if begun != list(steps):
            yield f"{node}: steps {', '.join(begun) or 'none'}; expected {', '.join(steps) or 'none'}"
    for node, state in expect.states.items():
        now = rehearsal.state.nodes[node].state if node in rehearsal.state.nodes else None
        if now is not state:
            yield f"{node}: is {now.value if now else 'missing'}, expected {state.value}"
    by_name = rehearsal.settings.policy.by_name
    for node in expect.untouched:
        acted = [d.rule for d in rehearsal.decisions.values() if d.node == node and by_name[d.rule].acts]
        if acted:
            yield f"{node}: {', '.join(acted)} acted there, expected nothing"


def _format_decisions(pairs: list[tuple[str, str]]) -> str:
    return ", ".join(f"{rule} ({answer})" for rule, answer in pairs) or "nothing"
