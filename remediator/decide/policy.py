"""A policy: rules in order of precedence, and the one question asked of it, `rule_for`.

A finding is answered by the first rule that matches it; among the findings of an incident, rules that act come before rules
that watch, and then the order in the file decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from remediator.model.records import Step
from vocabulary.finding import Finding, Severity


class Match(msgspec.Struct, frozen=True):
    """Shell patterns for ``check/code``, and severities; a finding must fit both, and an empty list means any."""

    findings: tuple[str, ...] = ()
    severities: tuple[Severity, ...] = ()

    def accepts(self, finding: Finding) -> bool:
        """Whether the finding fits both lists."""
        kind_fits = not self.findings or any(fnmatchcase(finding.kind, pattern) for pattern in self.findings)
        return kind_fits and (not self.severities or finding.severity in self.severities)


class Rule(msgspec.Struct, frozen=True):
    """One line of policy: when, what, why. No stages means: watch, do nothing, say so."""

    name: str
    why: str
    match: Match
    stages: tuple[tuple[Step, ...], ...]


class Policy(msgspec.Struct, frozen=True):
    """The rules in force, and the digest of the text they came from."""

    rules: tuple[Rule, ...]
    digest: str
    source: str

    def rule_for(self, findings: Iterable[Finding]) -> tuple[int, Rule, Finding] | None:
        """The rule that answers these findings, its rank (lower outranks) and the finding it answers.

        Each active finding is answered by the first rule that matches it. Of several answers the one highest in the file
        wins, but one that acts always before one that watches: a mild fact must not hide a grave one.
        """
        answers = [found for f in findings if f.active and (found := self._first(f)) is not None]
        return min(answers, key=lambda a: (a[0], a[2].id), default=None)

    def _first(self, finding: Finding) -> tuple[int, Rule, Finding] | None:
        for place, rule in enumerate(self.rules):
            if rule.match.accepts(finding):
                return place if rule.stages else len(self.rules) + place, rule, finding
        return None
