"""Finds errors in a policy whose files are all well formed. Pure: rules and known findings in, problems out."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase

import msgspec

from remediator.decisions.policy import Policy, PolicyRule
from remediator.decisions.rule_matching import FITS, finding_misfit
from remediator.decisions.trainer_orders import NAMES_A_STEP
from remediator.model.plan_steps import TrainerNotice, Verb
from remediator.model.rule_conditions import Match
from remediator.state.cluster_state import ISOLATION, RETURNED
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind

VERDICTS = ("straggler", "hang", "lemon", "sdc")  # checks of the controller's own detectors
_WILD = frozenset("*?[")  # a pattern with one of these may also match unknown findings
_WAYS_OUT = frozenset({Verb.RETURN_TO_SERVICE, Verb.REPLACE})

OPEN = "*"  # in place of a code: the check has codes that are not listed
ANY_CODE = "any"

Known = Mapping[str, frozenset[Severity]]  # check/code → the severities it can have; check/* for an open check


class ProblemLevel(str, enum.Enum):
    """ERROR: the policy does not do what it seems to. WARNING: probably unintended."""

    ERROR = "error"
    WARNING = "warning"


class PolicyProblem(msgspec.Struct, frozen=True):
    """One problem: where, and what."""

    level: ProblemLevel
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.level.value}: {self.text}"


def lint_policy(policy: Policy, known: Known) -> list[PolicyProblem]:
    """Return all problems, in the order of the rules; those of the whole policy come last."""
    known = _known_with_policy_codes(policy, known)
    taken = _FirstRules(policy, known)
    names = policy.by_name.keys()
    found = [problem for rule in policy.rules for problem in _rule_problems(rule, known, taken, names)]
    return [*found, *_uncovered_problems(policy, known)]


def _known_with_policy_codes(policy: Policy, known: Known) -> Known:
    """Return known findings with codes of open checks that the policy names, and one that it does not."""
    named = [pattern for rule in policy.rules for pattern in rule.match.findings if not set(pattern) & _WILD]
    found: dict[str, frozenset[Severity]] = {}
    for kind, severities in known.items():
        check, _, code = kind.partition("/")
        if code != OPEN:
            found[kind] = severities
            continue
        codes = [pattern for pattern in named if pattern.startswith(f"{check}/")]
        found |= dict.fromkeys([*codes, f"{check}/{ANY_CODE}"], severities)
    return found


def _rule_problems(
    rule: PolicyRule, known: Known, taken: _FirstRules, names: Collection[str]
) -> Iterator[PolicyProblem]:
    yield from _unknown_pattern_problems(rule, known, names)
    yield from taken.problems(rule)
    if rule.isolates and not any(step.verb in _WAYS_OUT for stage in rule.stages for step in stage):
        text = f"{rule.name} takes a node out of service without a way back; end it with return_to_service or replace"
        yield PolicyProblem(ProblemLevel.ERROR, rule.place, text)
    back = [step for step in rule.steps if step.verb is Verb.NOTIFY_TRAINER and step.how == TrainerNotice.REVERT.value]
    lost = [kind for kind in rule.match.findings or ("any finding",) if kind not in NAMES_A_STEP]
    if back and lost:
        text = f"{rule.name}: {', '.join(lost)}: 'revert' needs a finding with a last good step; it works for {', '.join(NAMES_A_STEP)}"
        yield PolicyProblem(ProblemLevel.ERROR, rule.place, text)
    if rule.guards.drained and rule.isolates:
        text = f"{rule.name} waits for the node to drain before it drains the node; guard the step instead"
        yield PolicyProblem(ProblemLevel.ERROR, rule.place, text)


class _FirstRules:
    """Which rule comes first for each known finding, as far as the finding alone decides."""

    def __init__(self, policy: Policy, known: Known) -> None:
        self._first: dict[tuple[str, Severity], PolicyRule] = {}
        self._specimens = [
            _specimen_finding(kind, severity) for kind, severities in known.items() for severity in severities
        ]
        self._accepted: dict[str, list[Finding]] = {}
        self._rank = {rule.name: rank for rank, rule in enumerate(policy.rules)}
        for rule in policy.rules:
            fitting = [s for s in self._specimens if finding_misfit(_generalize_match(rule.match), s) == FITS]
            self._accepted[rule.name] = fitting
            for specimen in fitting if rule.match.unconditional and not rule.match.components else ():
                self._first.setdefault((specimen.kind, specimen.severity), rule)

    def problems(self, rule: PolicyRule) -> Iterator[PolicyProblem]:
        """Return patterns of the rule, or the whole rule, that earlier rules shadow completely."""
        accepted = self._accepted[rule.name]
        hidden = {s.id: self._hider(s, rule) for s in accepted}
        if not rule.match.findings:
            return  # a fallback exists for unknown findings
        if not accepted and any(fnmatchcase(s.kind, p) for s in self._specimens for p in rule.match.findings):
            text = f"{rule.name} never matches: its findings never have this severity"
            yield PolicyProblem(ProblemLevel.ERROR, rule.place, text)
        if accepted and all(hidden.values()):
            names = ", ".join(sorted({h.name for h in hidden.values() if h is not None}))
            yield PolicyProblem(ProblemLevel.ERROR, rule.place, f"{rule.name} is never reached: {names} matches first")
            return
        dead = []
        for pattern in rule.match.findings:
            mine = [s for s in accepted if fnmatchcase(s.kind, pattern)]
            if not set(pattern) & _WILD and mine and all(hidden[s.id] for s in mine):
                dead.append(pattern)
        if dead:
            names = ", ".join(
                sorted({h.name for s in accepted if (h := hidden[s.id]) and any(fnmatchcase(s.kind, d) for d in dead)})
            )
            text = f"{rule.name}: {', '.join(dead)} never reach it: {names} matches first"
            yield PolicyProblem(ProblemLevel.WARNING, rule.place, text)

    def _hider(self, specimen: Finding, rule: PolicyRule) -> PolicyRule | None:
        first = self._first.get((specimen.kind, specimen.severity))
        if first is None or first is rule or _rule_folder(first) != _rule_folder(rule):
            return None  # a site's rule precedes a shipped one on purpose
        return first if self._rank[first.name] < self._rank[rule.name] else None


def _unknown_pattern_problems(rule: PolicyRule, known: Known, names: Collection[str]) -> Iterator[PolicyProblem]:
    """Return patterns that match nothing known: probably typing errors."""
    action_kinds = [f"{kind}/{verb.value}" for kind in ("action", "failed") for verb in Verb]
    countable = [*known, ISOLATION, RETURNED, *action_kinds, *(f"rule/{name}" for name in names)]
    together = rule.match.together
    company = together.all + together.any + together.none if together is not None else ()
    guards = (rule.guards, *(step.guards for step in rule.steps))
    clauses = (*rule.match.history, *(clause for guard in guards for clause in guard.history))
    places = [(rule.match.findings + company, list(known)), *((clause.of, countable) for clause in clauses)]
    for patterns, words in places:
        for pattern in patterns:
            if not any(fnmatchcase(kind, pattern) for kind in words):
                yield _unknown_pattern_problem(rule, pattern, words)


def _unknown_pattern_problem(rule: PolicyRule, pattern: str, known: Collection[str]) -> PolicyProblem:
    near = difflib.get_close_matches(pattern, known, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return PolicyProblem(ProblemLevel.WARNING, rule.place, f"{rule.name}: no known finding is called '{pattern}'{hint}")


def _uncovered_problems(policy: Policy, known: Known) -> Iterator[PolicyProblem]:
    """Return findings that only fallback rules answer."""
    last = policy.rules[-1]
    if last.match != Match():
        yield PolicyProblem(
            ProblemLevel.ERROR,
            last.place,
            f"the last rule, {last.name}, does not match everything: remove its 'match'",
        )
    for kind, severities in known.items():
        for severity in sorted(severities, key=lambda s: s.rank):
            specimen = _specimen_finding(kind, severity)
            named = any(
                rule.match.findings and rule.match.unconditional and finding_misfit(rule.match, specimen) == FITS
                for rule in policy.rules
            )
            if not named:
                text = f"{kind} ({severity.value}) is not covered: no rule matches it in every state of its node"
                yield PolicyProblem(ProblemLevel.ERROR, policy.source, text)


def _rule_folder(rule: PolicyRule) -> str:
    return rule.place.rpartition("/")[0]


def _generalize_match(match: Match) -> Match:
    """Remove the conditions that a sample finding cannot decide."""
    return msgspec.structs.replace(match, evidence={}, components=())


def _specimen_finding(kind: str, severity: Severity) -> Finding:
    check, _, code = kind.partition("/")
    return Finding(
        id=f"{kind} {severity.value}",
        node="",
        check=check,
        code=code,
        component=Component(ComponentKind.GPU),
        severity=severity,
        summary="",
        first_seen=0.0,
        last_seen=0.0,
        origin="",
    )
