"""A policy: rules in order of precedence, and the one question asked of it, `rule_for`.

The first rule that matches any of the findings wins; so precedence is the order in the file, and nothing else.
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
        """The highest-ranking rule that any active finding meets, its rank (0 is highest) and that finding."""
        active = [f for f in findings if f.active]
        for rank, rule in enumerate(self.rules):
            for finding in active:
                if rule.match.accepts(finding):
                    return rank, rule, finding
        return None
