"""Run a scenario: through the very pipeline that runs live, in a cluster that answers in imagination."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from remediator.decide.approval import awaiting
from remediator.decide.budget import of_level_only
from remediator.decide.policy import Policy
from remediator.decide.settings import Settings
from remediator.model.hold import NodeHold, Owner
from remediator.model.inputs import (
    AnyInput,
    Approved,
    FindingsReported,
    HoldsObserved,
    InventoryChanged,
    PlacementChanged,
)
from remediator.model.records import Answer, JobRef
from remediator.model.rules import DAY_S
from remediator.playbook.scenario import Event, Expected, Scenario, ScenarioDocument
from remediator.playbook.text import Text, read
from remediator.rehearsal import Rehearsal, World
from vocabulary.catalogue import Catalogue
from vocabulary.finding import Evidence, Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind

SUFFIX = ".scenarios.yaml"
START = 1_000_000.0  # scenarios begin at second 0; the pipeline wants a time that is none


class Result(msgspec.Struct, frozen=True):
    """How one scenario went: no problems means that everything expected came true."""

    name: str
    place: str
    problems: tuple[str, ...]
    rules: tuple[str, ...]  # that decided, for coverage


def scenarios_beside(playbook: Path) -> Path:
    """Where a playbook's scenarios are."""
    return playbook.with_name(playbook.stem + SUFFIX)


def run_file(path: Path, policy: Policy, catalogue: Catalogue) -> Iterator[Result]:
    """Run every scenario of a file under a policy.

    Raises:
        PolicyError: the file cannot be read, or says something that is no scenario.
    """
    text: Text[ScenarioDocument] = read(path, ScenarioDocument)
    for i, scenario in enumerate(text.record.scenarios):
        yield run(scenario, policy, catalogue, text.place("scenarios", i))


def run(scenario: Scenario, policy: Policy, catalogue: Catalogue, place: str = "") -> Result:
    """Run one scenario."""
    budget = of_level_only(scenario.isolated_max)
    settings = Settings(policy=policy, mode=scenario.mode, budget=budget, probation_s=DAY_S)
    rehearsal = Rehearsal(settings, World(answers=dict(scenario.answers)))
    rehearsal.now = START
    for item in _beginning(scenario):
        rehearsal.tell(item)
    placed = dict(scenario.jobs)
    for number, event in enumerate(sorted(scenario.given, key=lambda e: e.at)):
        rehearsal.run(START + event.at)
        for item in _inputs(event, number, rehearsal, placed, catalogue):
            rehearsal.tell(item)
    rehearsal.run(START + scenario.until)
    rules = tuple(decision.rule for decision in rehearsal.decisions.values())
    return Result(scenario.name, place, tuple(_problems(scenario.expect, rehearsal)), rules)


def _beginning(scenario: Scenario) -> Iterator[AnyInput]:
    for number in range(1, scenario.nodes + 1):
        node = f"n{number}"
        yield FindingsReported(at=START, node=node, boot_id="", active=())
        yield InventoryChanged(at=START, node=node, products=(scenario.gpu,))
        yield _placement(node, scenario.jobs, START)
    in_service = tuple(NodeHold(f"n{number}", schedulable=True) for number in range(1, scenario.nodes + 1))
    yield HoldsObserved(at=START, holds=in_service)


def _placement(node: str, placed: dict[str, tuple[str, ...]], at: float) -> PlacementChanged:
    jobs = tuple(JobRef(job, 0) for job, nodes in sorted(placed.items()) if node in nodes)
    return PlacementChanged(at=at, node=node, jobs=jobs)


def _inputs(
    event: Event, number: int, rehearsal: Rehearsal, placed: dict[str, tuple[str, ...]], catalogue: Catalogue
) -> Iterator[AnyInput]:
    at = rehearsal.now
    if event.finding:
        finding = _finding(event, number, at, catalogue)
        yield FindingsReported(at=at, node=event.node, boot_id="", changes=(finding,))
    if event.clear:
        over = tuple(f.cleared(at, "scenario") for f in rehearsal.state.active_on(event.node) if f.kind == event.clear)
        yield FindingsReported(at=at, node=event.node, boot_id="", changes=over)
    if event.job:
        before = placed.get(event.job, ())
        placed[event.job] = event.nodes
        for node in sorted({*before, *event.nodes}):
            yield _placement(node, placed, at)
    if event.operator:
        holds = event.operator == "holds"
        owner = Owner.OPERATOR if holds else Owner.NOBODY
        yield HoldsObserved(at=at, holds=(NodeHold(event.node, schedulable=not holds, drained=holds, owner=owner),))
    incident = rehearsal.state.incident_of(event.node)
    if event.approve and incident is not None:
        for awaited in awaiting(incident)[:1]:
            yield Approved(at=at, incident=incident.id, what=awaited.id, actor="scenario")


def _finding(event: Event, number: int, at: float, catalogue: Catalogue) -> Finding:
    check, _, code = event.finding.partition("/")
    component = _component(event.component)
    severity = event.severity or _severity(check, code, catalogue)
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


def _severity(check: str, code: str, catalogue: Catalogue) -> Severity:
    if check == "xid":
        number = 79 if code == "fallen_off_bus" else int(code) if code.isdecimal() else 0
        return catalogue.entry(number).severity
    if check == "sxid" and code.isdecimal():
        return catalogue.sxid_entry(int(code)).severity
    return Severity.UNCLASSIFIED


def _component(text: str) -> Component:
    name = text.rstrip("0123456789")
    kind = ComponentKind(name) if name in set(ComponentKind) else ComponentKind.HOST
    number = text[len(name) :]
    return Component(kind, name=number and text, index=int(number) if number else None)


def _problems(expect: Expected, rehearsal: Rehearsal) -> Iterator[str]:
    for node, wanted in expect.decisions.items():
        found = [(d.rule, d.answer.value) for d in rehearsal.decisions.values() if d.node == node]
        due = [(w, Answer.ACT.value) if isinstance(w, str) else (w.rule, w.answer.value) for w in wanted]
        if found != due:
            yield f"{node}: decided {_listed(found)}, expected {_listed(due)}"
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
            yield f"{node}: is {now.value if now else 'not there'}, expected {state.value}"
    by_name = rehearsal.settings.policy.by_name
    for node in expect.untouched:
        acted = [d.rule for d in rehearsal.decisions.values() if d.node == node and by_name[d.rule].acts]
        if acted:
            yield f"{node}: {', '.join(acted)} acted there, expected nothing"


def _listed(pairs: list[tuple[str, str]]) -> str:
    return ", ".join(f"{rule} ({answer})" for rule, answer in pairs) or "nothing"
