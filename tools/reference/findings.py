"""Every kind of finding: how grave, what it means, and which rule of the shipped policy answers it.

Kinds, severities and meanings come from the grammar of the kernel log, from what the centre says itself, and from the table
of docs/reference/healthd.md, which is where the limits of each check are explained. Numbers of the driver stand in xids.md.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from healthctl.finding_kinds import known_kinds
from healthd.kernel_log.message_patterns.pattern_families import FAMILIES
from remediator.decisions.policy import Policy, PolicyRule
from remediator.decisions.rule_matching import FITS, finding_misfit, rule_names_kind
from remediator.detection.stragglers.straggler_verdict import SlowdownKind as Straggler
from remediator.playbook.playbook_loader import SHIPPED, load_policy
from tools.reference.markdown import join_lines, render_code, render_head, render_prose, render_table
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind

ROOT = Path(__file__).parents[2]
HEALTHD = ROOT / "docs" / "reference" / "healthd.md"
CHECKS = ROOT / "healthd" / "checks"
ABOUT = (
    (
        "A finding's kind is `check/code`. *Rule* is the first rule of the shipped policy that answers this kind whatever else is known; "
        "rules in brackets answer before it where their conditions hold. What is done then stands in [what rules do](#what-rules-do). "
        "`healthctl playbook explain INCIDENT` says which one decided, and why."
    ),
    (
        "A finding of severity *info* is recorded and never active. What raises and clears each: [healthd from inside](healthd.md). "
        "Numbers of the driver: [XIDs](xids.md)."
    ),
)
_ROW = re.compile(r"^\| (?P<kinds>`[a-z].*?) \| (?P<says>.*?) \| .* \|$", re.MULTILINE)
_SEVERITY = re.compile(
    r"(?:^|(?<=\()|(?<=else )|(?<=: ))(fatal|error|warning|info|unclassified)\b(?=:|$| if|,|\)|;)(?:: )?"
)
_NAMES_A_NODE = (Severity.WARNING, Severity.ERROR)  # as an error once a second witness agrees


class Kind(NamedTuple):
    """One kind as it is documented."""

    name: str
    severities: tuple[Severity, ...]
    meaning: str


def render_findings_page() -> str:
    """docs/reference/findings.md."""
    policy = load_policy([SHIPPED])
    lines = [*render_head("Findings", *ABOUT), "## Kinds", ""]
    rows = [
        [render_code(k.name), _words(k.severities), render_prose(k.meaning), _answer(policy, k)]
        for k in list_finding_kinds()
    ]
    lines += render_table(["finding", "severity", "meaning", "rule"], rows)
    lines += ["## The driver's numbers", ""]
    lines += render_table(["finding", "severity", "rule"], _numbers(policy))
    lines += [
        "## What rules do",
        "",
        "In the order in which they are asked. `a + b` are begun together, `→` comes after.",
        "",
    ]
    lines += render_table(
        ["rule", "why", "steps"],
        [[render_code(rule.name), render_prose(rule.why), _plan(rule)] for rule in policy.rules],
    )
    return join_lines(lines)


def list_finding_kinds() -> list[Kind]:
    """All kinds but the driver's numbers, by name."""
    found = {kind.name: kind for kind in (*_of_checks(), *_of_grammar(), *_of_centre())}
    return [found[name] for name in sorted(found)]


def _of_grammar() -> Iterator[Kind]:
    for family in FAMILIES:
        for form in (form for form in family.forms if not form.clears):
            yield Kind(f"{family.check}/{form.code}", (form.severity,), form.summary)


def _of_centre() -> Iterator[Kind]:
    yield Kind("node/silent", (Severity.WARNING,), "the centre has not heard of the node for `silence.after_s`")
    yield Kind("preflight/failed", (Severity.ERROR,), "a preflight that no order asked for failed")
    yield Kind("preflight/inconclusive", (Severity.INFO,), "such a preflight came to no conclusion")
    yield Kind("preflight/misconfigured", (Severity.INFO,), "such a preflight lacks what a person must put right")
    for kind, meaning in _SLOW.items():
        recorded = () if kind in {Straggler.NODE, Straggler.GPU} else (Severity.INFO,)
        named = _NAMES_A_NODE if kind in _CULPRITS else ()
        yield Kind(f"straggler/{kind.value}", (*recorded, *named), meaning)
    yield Kind("hang/stuck_compute", _NAMES_A_NODE, "a job stands still: a rank has not arrived where the others wait")
    yield Kind("hang/dead_rank", _NAMES_A_NODE, "a job stands still: a rank died")
    yield Kind(
        "hang/network", (Severity.WARNING,), "a job stands still: all ranks are in a collective that does not end"
    )
    yield Kind("hang/nobody", (Severity.WARNING,), "a job stands still, and no single rank can be named")
    yield Kind("lemon/watched", (Severity.INFO,), "a node fails more often than chance explains; it is watched")
    yield Kind("lemon/suspected", (Severity.WARNING,), "a node is likely a lemon: it should be tested")
    yield Kind(
        "lemon/confirmed", (Severity.ERROR,), "a node is almost surely a lemon: it should be repaired or replaced"
    )


_CULPRITS = {Straggler.NODE, Straggler.GPU, Straggler.LINK, Straggler.HOST_IO}
_SLOW = {
    Straggler.NODE: "a node slows a job; an error where its own findings agree and leaving pays",
    Straggler.GPU: "one GPU slows a job; an error where its node's own findings agree and leaving pays",
    Straggler.LINK: "a link slows a job; recorded where it cannot be told whose",
    Straggler.HOST_IO: "a node waits for data; recorded where all of a job's do",
    Straggler.STAGE: "a stage has more work than the others; no node is to blame",
    Straggler.DATA: "ranks work on sequences of unequal length; no node is to blame",
    Straggler.GC: "ranks collect garbage, one after the other; no node is to blame",
    Straggler.APPLICATION: "the program keeps single ranks from their work; no node is to blame",
    Straggler.GLOBAL: "all ranks became slower at once; no node is to blame",
}


def _of_checks() -> Iterator[Kind]:
    """The rows of healthd's table. Codes follow their check; severities and meanings, parted by `·`, follow the codes."""
    by_line = {family.check for family in FAMILIES}
    for row in _ROW.finditer(HEALTHD.read_text()):
        groups = [re.findall(r"`([a-z0-9_/*N]+)`", group) for group in row["kinds"].split(" · ")]
        says = row["says"].split(" · ")
        check = ""
        for place, group in enumerate(groups):
            said = says[min(place, len(says) - 1)]
            for word in group:
                check, _, after = word.partition("/") if "/" in word else (check, "", word)
                if check and after and check not in by_line and check not in {"xid", "sxid", "preflight"}:
                    yield Kind(f"{check}/{after.replace('N', '*')}", _severities(said, says), _meaning(said, check))


def _severities(said: str, says: list[str]) -> tuple[Severity, ...]:
    """Those that are named here, or else the last that was named before, in the same row."""
    for text in (said, *reversed(says[: says.index(said)])):
        found = {Severity(word) for word in _SEVERITY.findall(text)}
        if found:
            return tuple(each for each in Severity if each in found)
    raise ValueError(f"{HEALTHD.name}: no severity in {said!r}")


def _meaning(said: str, check: str) -> str:
    """What the row says beside the severity; where it says nothing, what the check is about."""
    words = re.sub(r" ?\(?\[[^\]]*\]\([^)]*\)\)?", "", _SEVERITY.sub("", said, count=1)).strip(" ;,:")
    return words or next((line for name in (check, f"{check}s") if (line := _about(name))), "")


def _about(check: str) -> str:
    """The first sentence of a check's own file."""
    for path in sorted(CHECKS.glob("*_checks.py")):
        text = path.read_text()
        if f'CHECK = "{check}"' in text:
            return (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].partition(". ")[0]
    return ""


def _numbers(policy: Policy) -> Iterator[list[str]]:
    for name, found in known_kinds(load_catalogue()).items():
        if name.startswith("xid/"):
            kind = Kind(name, tuple(each for each in Severity if each in found), "")
            yield [render_code(name), _words(kind.severities), _answer(policy, kind)]


def _words(severities: tuple[Severity, ...]) -> str:
    return ", ".join(severity.value for severity in severities)


def _answer(policy: Policy, kind: Kind) -> str:
    """Which rule answers; where that depends on the severity, for each."""
    answers = {severity: _answers(policy, kind.name, severity) for severity in kind.severities}
    if len(set(answers.values())) == 1:
        return next(iter(answers.values()))
    return "; ".join(f"{severity.value}: {answer}" for severity, answer in answers.items())


def _answers(policy: Policy, kind: str, severity: Severity) -> str:
    """The rule that answers, after those that answer before it on a condition."""
    before: list[str] = []
    for rule in policy.rules:
        if not rule_names_kind(rule.match, kind) or not any(
            _fits(rule, kind, severity, part) for part in ComponentKind
        ):
            continue
        if rule.match.unconditional and not rule.match.components:
            shown = [render_code(rule.name), *([f"({', '.join(map(render_code, before))})"] if before else [])]
            return " ".join(shown)
        before.append(rule.name)
    return f"({', '.join(map(render_code, before))})" if before else ""


def _fits(rule: PolicyRule, kind: str, severity: Severity, part: ComponentKind) -> bool:
    """Whether the rule may answer such a finding, whatever evidence it asks for."""
    check, _, what = kind.partition("/")
    finding = Finding(
        id="f",
        node="n",
        component=Component(part, name="c"),
        check=check,
        code=what,
        severity=severity,
        summary="",
        first_seen=0.0,
        last_seen=0.0,
        origin="",
        evidence={name: values[0] for name, values in rule.match.evidence.items()},
    )
    return finding_misfit(rule.match, finding) == FITS


def _plan(rule: PolicyRule) -> str:
    stages = (
        " + ".join(f"{step.verb.value} {step.how}".strip() if len(step.how) < 20 else step.verb.value for step in stage)
        for stage in rule.stages
    )
    return render_prose(" → ".join(stages)) or "recorded, or kept in sight until it clears"
