"""A policy: rules in order of precedence, and the selection of the rule that answers a set of findings.

The first matching rule answers a finding. Among the findings of an incident, rules that act come before rules that only
notify; then the order of the rules decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from remediator.decisions.rule_matching import FITS, allows_finding, match_misfit, rule_names_kind
from remediator.model.journal_records import Considered
from remediator.model.plan_steps import ISOLATING, NON_DISRUPTIVE, Mode, Step
from remediator.model.rule_conditions import About, CountCondition, Guards, JobScope, Match
from remediator.state.cluster_state import ClusterState
from vocabulary.finding import Finding, Severity
from vocabulary.identity import ComponentKind

KINDS_REMEMBERED = 10_000
CONSIDERED_MAX = 20


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One rule: condition, plan and reason.

    Without stages, info findings are recorded and others watched until they clear.
    """

    name: str
    why: str
    match: Match
    stages: tuple[tuple[Step, ...], ...] = ()
    mode: Mode = Mode.ACT
    guards: Guards = Guards()
    incident: About = About.NODE
    place: str = ""  # where it is defined, FILE:LINE

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Yield every step of the plan, including failure branches."""
        return tuple(each for stage in self.stages for step in stage for each in step.whole)

    @cached_property
    def acts(self) -> bool:
        """Whether its plan changes anything on a node or of a job."""
        return any(step.verb not in NON_DISRUPTIVE for step in self.steps)

    @cached_property
    def isolates(self) -> bool:
        """Whether its plan isolates a node."""
        return any(step.verb in ISOLATING for step in self.steps)


class RuleReads(msgspec.Struct, frozen=True):
    """What rules about one kind of findings read beyond the finding and its node."""

    clauses: tuple[CountCondition, ...]
    company_s: tuple[float, ...]  # for how long other findings of the node count as present
    spares: bool


class RuleAnswer(msgspec.Struct, frozen=True):
    """The rule that answers, the finding it answers, and its rank: lower goes first."""

    rank: int
    rule: PolicyRule
    finding: Finding


class Policy:
    """The rules in use and the digest of their source. Immutable; a new source is a new policy."""

    def __init__(self, rules: Sequence[PolicyRule], digest: str, source: str) -> None:
        self.rules = tuple(rules)
        self.digest = digest
        self.source = source
        self.by_name: Mapping[str, PolicyRule] = {rule.name: rule for rule in self.rules}
        self._places = {name: place for place, name in enumerate(self.by_name)}
        self._by_kind: dict[str, tuple[int, ...]] = {}
        self._by_finding: dict[tuple[str, Severity, ComponentKind], tuple[int, ...]] = {}
        self._reads: dict[str, RuleReads] = {}

    @cached_property
    def no_job_s(self) -> tuple[float, ...]:
        """How long rules for nodes without a job require no rank."""
        return tuple({rule.match.no_job_s for rule in self.rules if rule.match.job is JobScope.NONE})

    def rank(self, name: str, told: Collection[str] = ()) -> int:
        """Return a rule's rank: rules that act, then rules that notify, then those that have notified already.

        A name that is not in the policy ranks last.
        """
        place = self._places.get(name)
        if place is None:
            return 3 * len(self.rules)
        if self.rules[place].acts:
            return place
        return (2 if name in told else 1) * len(self.rules) + place

    def first(self, finding: Finding, state: ClusterState, now: float) -> PolicyRule | None:
        """Return the rule that answers one finding."""
        for place in self._candidates(finding):
            if match_misfit(self.rules[place].match, finding, state, now) == FITS:
                return self.rules[place]
        return None

    def about_job(self, finding: Finding, state: ClusterState, now: float) -> PolicyRule | None:
        """Return the rule that answers one finding, if it makes the finding its job's."""
        if not any(self.rules[place].incident is About.JOB for place in self._speaking_of(finding.kind)):
            return None
        rule = self.first(finding, state, now)
        return rule if rule is not None and rule.incident is About.JOB else None

    def answer(
        self, findings: Iterable[Finding], state: ClusterState, now: float, told: Collection[str] = ()
    ) -> RuleAnswer | None:
        """Return the rule that answers all these findings together; None without findings or without a rule.

        Args:
            findings: the findings to answer.
            state: the cluster's state.
            now: UTC seconds.
            told: notifying rules that have run; others go first.
        """
        answers = [
            RuleAnswer(self.rank(rule.name, told), rule, finding)
            for finding in findings
            if (rule := self.first(finding, state, now)) is not None
        ]
        return min(answers, key=lambda a: (a.rank, a.finding.id), default=None)

    def considered(
        self, findings: Iterable[Finding], chosen: RuleAnswer, state: ClusterState, now: float
    ) -> tuple[Considered, ...]:
        """Return every other rule that names one of these findings by check, and why it does not answer."""
        found = []
        for finding in findings:
            first = self.first(finding, state, now)
            for place in self._speaking_of(finding.kind):
                rule = self.rules[place]
                if not rule.match.findings or rule is chosen.rule:
                    continue
                why = match_misfit(rule.match, finding, state, now)
                if why == FITS and first is not rule:
                    why = f"{first.name if first else '-'} takes precedence"
                elif why == FITS:
                    why = f"it matches this finding, but {chosen.rule.name} has priority"
                found.append(Considered(rule.name, finding.kind, why))
        return tuple(dict.fromkeys(found))[:CONSIDERED_MAX]

    def reads(self, kind: str) -> RuleReads:
        """Return what the rules that name this kind, or any kind, read."""
        reads = self._reads.get(kind)
        if reads is None:
            if len(self._reads) >= KINDS_REMEMBERED:
                self._reads.clear()
            rules = [self.rules[place] for place in self._speaking_of(kind)]
            reads = self._reads[kind] = RuleReads(
                tuple(dict.fromkeys(c for rule in rules for c in (*rule.match.history, *rule.guards.history))),
                tuple({rule.match.together.within_s for rule in rules if rule.match.together is not None}),
                any(rule.guards.spares for rule in rules),
            )
        return reads

    def _candidates(self, finding: Finding) -> tuple[int, ...]:
        """Return the positions of rules that this kind, severity and component allow, whatever the situation."""
        key = (finding.kind, finding.severity, finding.component.kind)
        places = self._by_finding.get(key)
        if places is None:
            if len(self._by_finding) >= KINDS_REMEMBERED:
                self._by_finding.clear()
            named = self._speaking_of(finding.kind)
            places = tuple(place for place in named if allows_finding(self.rules[place].match, finding))
            self._by_finding[key] = places
        return places

    def _speaking_of(self, kind: str) -> tuple[int, ...]:
        """Return the positions of rules that name this kind, or any kind."""
        places = self._by_kind.get(kind)
        if places is None:
            if len(self._by_kind) >= KINDS_REMEMBERED:
                self._by_kind.clear()
            places = tuple(place for place, rule in enumerate(self.rules) if rule_names_kind(rule.match, kind))
            self._by_kind[kind] = places
        return places
