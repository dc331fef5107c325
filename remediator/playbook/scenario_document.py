"""Scenarios: timelines beside a playbook with their expected decisions. They are its tests.

scenarios:
- name: a GPU falls off the bus
nodes: 4 jobs: {train: [n1, n2]}
given:
- {at: 0, node: n1, finding: xid/79}
expect:
decisions: {n1: [gpu-lost]} steps: {n1: [cordon, notify_trainer, collect_evidence, ticket, alert, replace]} states: {n1:
replacing} untouched: [n2, n3, n4]
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from remediator.model.journal_records import Answer
from remediator.model.plan_steps import Mode
from remediator.model.rule_conditions import DAY_S, NodeState
from remediator.playbook.playbook_document import Name
from vocabulary.finding import Severity

NodeName = Annotated[str, Meta(pattern=r"^n[1-9][0-9]{0,3}$", description="n1, n2, ... up to the number of nodes.")]
Subject = Annotated[
    str, Meta(pattern=r"^(n[1-9][0-9]{0,3}|job:.+)$", description="A node, or job:NAME of an incident about a job.")
]
At = Annotated[float, Meta(ge=0, le=90 * DAY_S, description="Seconds since the scenario began.")]


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One event: exactly one of `finding`, `clear`, `job`, `operator` and `approve`."""

    at: At
    node: NodeName = "n1"
    finding: str = ""  # check/code
    severity: Severity | None = None  # of an Xid or SXid: from the catalogue
    component: str = "gpu0"  # kind and name: gpu0, nvswitch1, host
    evidence: dict[str, str] = {}
    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    clear: str = ""  # check/code of a finding that has cleared
    job: str = ""  # runs on `nodes` from now on, and nowhere else
    nodes: tuple[NodeName, ...] = ()
    operator: Literal["", "holds", "gives-back"] = ""
    approve: bool = False  # an operator approves what waits on `node`


class DecisionExpected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule and its answer."""

    rule: Name
    answer: Answer = Answer.ACT


class Expected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must have happened; anything not named is not checked."""

    decisions: dict[Subject, tuple[Name | DecisionExpected, ...]] = {}  # all of them, in order
    steps: dict[NodeName, tuple[str, ...]] = {}  # every step that began, in order
    states: dict[NodeName, NodeState] = {}  # at the end
    untouched: tuple[NodeName, ...] = ()  # no rule acted there


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One timeline with its expected outcome."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    given: tuple[Event, ...]
    expect: Expected
    nodes: Annotated[int, Meta(ge=1, le=2000)] = 4
    gpu: str = "NVIDIA H100 80GB HBM3"
    jobs: dict[str, tuple[NodeName, ...]] = {}
    mode: Mode = Mode.ACT
    isolated_max: Annotated[int, Meta(ge=0)] = 4
    answers: dict[str, Literal["done", "failed", "refused", "never"]] = {}  # per verb, of this cluster
    until: At = 2 * DAY_S


class ScenarioDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of scenarios."""

    scenarios: tuple[Scenario, ...]
