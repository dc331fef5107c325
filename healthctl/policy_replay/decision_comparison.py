"""Compares two replays of one record, for people and programs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from healthctl.rendering.blocks import Block, Column, Facts, Line, Rows, format_timestamp
from remediator.model.journal_records import Decision
from remediator.model.pipeline_inputs import AnyInput, PolicyChanged
from remediator.replay.journal_replay import PolicyDifference, PolicyOutcome, PolicyTrial

SHOWN = 20


class DecisionDeviation(msgspec.Struct, frozen=True):
    """A decision that differs; None if one side has none."""

    id: str
    at: float
    node: str
    recorded: str | None
    replayed: str | None


class ReplayComparison(msgspec.Struct, frozen=True):
    """The replay of a record under `policy` (its digest). `other_policies`: decisions made under others, not compared."""

    policy: str
    inputs: int
    compared: int
    same: int
    other_policies: int
    begins_late: bool
    deviations: tuple[DecisionDeviation, ...]


class PolicyTimeline:
    """Which policy was active when, according to the inputs."""

    def __init__(self) -> None:
        self.inputs = 0
        self._since: list[tuple[float, str]] = []

    def watched(self, inputs: Iterable[AnyInput]) -> Iterator[AnyInput]:
        """Pass the inputs through, and note policy changes."""
        for item in inputs:
            self.inputs += 1
            if isinstance(item, PolicyChanged):
                self._since.append((item.at, item.digest))
            yield item

    def policy_at(self, at: float) -> str:
        """The digest of the active policy; empty before the first one."""
        return next((digest for since, digest in reversed(self._since) if since <= at), "")


def compare_decisions(
    recorded: Mapping[str, Decision],
    again: Sequence[Decision],
    policy: str,
    reigns: PolicyTimeline,
    *,
    begins_late: bool,
) -> ReplayComparison:
    """Compare replayed decisions under `policy` (its digest) with those recorded while it was active."""
    ours = {key: decision for key, decision in recorded.items() if reigns.policy_at(decision.at) in (policy, "")}
    replayed = {each.id: each for each in again if reigns.policy_at(each.at) in (policy, "")}
    different = [key for key in ours.keys() | replayed.keys() if ours.get(key) != replayed.get(key)]
    deviations = [_build_deviation(ours.get(key), replayed.get(key)) for key in different]
    return ReplayComparison(
        policy=policy,
        inputs=reigns.inputs,
        compared=len(ours),
        same=sum(replayed.get(key) == decision for key, decision in ours.items()),
        other_policies=len(recorded) - len(ours),
        begins_late=begins_late,
        deviations=tuple(sorted(deviations, key=lambda each: (each.at, each.id))),
    )


def _build_deviation(recorded: Decision | None, replayed: Decision | None) -> DecisionDeviation:
    either = recorded or replayed
    assert either is not None  # noqa: S101 - the caller has one of them
    return DecisionDeviation(either.id, either.at, either.node, _format_decision(recorded), _format_decision(replayed))


def _format_decision(decision: Decision | None) -> str | None:
    if decision is None:
        return None
    return "; ".join([f"{decision.rule} → {decision.answer.value}: {decision.reason}", *decision.guards])


def render_replay_comparison(found: ReplayComparison) -> Iterable[Block]:
    """Format for people."""
    yield Facts(
        [
            ("inputs", str(found.inputs)),
            ("policy", found.policy),
            ("decisions", f"{found.compared} recorded, {found.same} unchanged, {len(found.deviations)} different"),
            ("not compared", f"{found.other_policies} made under another policy" if found.other_policies else ""),
        ]
    )
    if found.begins_late:
        yield Line("The record lacks its earliest inputs, so its first decisions may differ.")
    if found.other_policies:
        yield Line("Another policy was active for a while, so later decisions may differ.")
    if found.deviations:
        yield Rows(found.deviations[:SHOWN], _DEVIATIONS)
    if len(found.deviations) > SHOWN:
        yield Line(f"and {len(found.deviations) - SHOWN} more; -o json shows all")


_DEVIATIONS: tuple[Column[DecisionDeviation], ...] = (
    Column("DECIDED", lambda d: format_timestamp(d.at)),
    Column("NODE", lambda d: d.node),
    Column("RECORDED", lambda d: d.recorded or "nothing", prose=True),
    Column("NOW", lambda d: d.replayed or "nothing", prose=True),
)


class _PolicySide(NamedTuple):
    name: str
    tried: PolicyTrial


def render_policy_comparison(a: PolicyTrial, b: PolicyTrial, different: Sequence[PolicyDifference]) -> Iterable[Block]:
    """Format two policies over one record for people."""
    yield Rows([_PolicySide("A", a), _PolicySide("B", b)], _SIDES)
    shown = [(d, told) for d in different if (told := d.a or d.b) is not None]
    yield Rows(shown, _DIFFERENCES, empty="no difference")


_SIDES: tuple[Column[_PolicySide], ...] = (
    Column("", lambda side: side.name),
    Column("POLICY", lambda side: side.tried.policy),
    Column("INCIDENTS", lambda side: str(len(side.tried.incidents))),
    Column("DECISIONS", lambda side: str(side.tried.decisions)),
    Column("ISOLATIONS", lambda side: str(side.tried.isolations)),
    Column("NODE-HOURS ISOLATED", lambda side: f"{side.tried.isolated_hours:g}"),
)
_DIFFERENCES: tuple[Column[tuple[PolicyDifference, PolicyOutcome]], ...] = (
    Column("OPENED", lambda pair: format_timestamp(pair[1].opened_at)),
    Column("INCIDENT", lambda pair: pair[1].incident),
    Column("NODE", lambda pair: pair[1].node),
    Column("A", lambda pair: _format_rule_answers(pair[0].a)),
    Column("B", lambda pair: _format_rule_answers(pair[0].b)),
    Column("TITLE", lambda pair: pair[1].title, prose=True),
)


def _format_rule_answers(told: PolicyOutcome | None) -> str:
    return ", ".join(f"{rule} ({answer})" for rule, answer in told.answers) if told is not None else "-"
