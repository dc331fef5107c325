"""Every kind of finding: severity, meaning, and the rule of the shipped policy that answers it.

Kinds, severities and meanings come from the grammar of the kernel log, from the list of the controller's own findings below,
and from tools/reference/kinds.md, which has the limits of each check. Numbers of the driver are in xids.md.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
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
KINDS = Path(__file__).with_name("kinds.md")
CHECKS = ROOT / "healthd" / "checks"
ABOUT = (
    (
        "The kind of a finding is `check/code`. *Rule* is the first rule of the shipped policy that answers this kind unconditionally; "
        "rules in brackets take precedence if their conditions hold. Steps of each rule: [what rules do](#what-rules-do). "
        "`healthctl playbook explain INCIDENT` says which rule decided, and why."
    ),
    (
        "Findings with severity *info* are recorded and never active. What *verification* is, and the siblings of a GPU: "
        "[healthd](healthd.md#findings-it-can-raise). Error numbers of the driver: [XIDs](xids.md)."
    ),
)
_ROW = re.compile(r"^\| (?P<kinds>`[a-z].*?) \| (?P<says>.*?) \| (?P<cleared>.*) \|$", re.MULTILINE)
_SEVERITY = re.compile(
    r"(?:^|(?<=\()|(?<=else )|(?<=: ))(fatal|error|warning|info|unclassified)\b(?=:|$| if|,|\)|;)(?:: )?"
)
_NAMES_A_NODE = (Severity.WARNING, Severity.ERROR)  # an error once a second evidence source agrees


class Kind(NamedTuple):
    """The documentation of one kind."""

    name: str
    severities: tuple[Severity, ...]
    meaning: str
    cleared: str = ""


def render_findings_page() -> str:
    """docs/reference/findings.md."""
    policy = load_policy([SHIPPED])
    lines = [*render_head("Findings", *ABOUT), "## Kinds", ""]
    rows = [
        [
            render_code(k.name),
            _words(k.severities),
            render_prose(k.meaning),
            render_prose(k.cleared),
            _answer(policy, k),
        ]
        for k in list_finding_kinds()
    ]
    lines += render_table(["finding", "severity", "meaning", "cleared by", "rule"], rows)
    lines += ["## XIDs", ""]
    lines += render_table(["finding", "severity", "rule"], _numbers(policy))
    lines += [
        "## What rules do",
        "",
        "In order of evaluation. `a + b` start together, `→` separates stages.",
        "",
    ]
    lines += render_table(
        ["rule", "why", "steps"],
        [[render_code(rule.name), render_prose(rule.why), _plan(rule)] for rule in policy.rules],
    )
    return join_lines(lines)


def list_finding_kinds() -> list[Kind]:
    """All kinds except XIDs and SXIDs, by name."""
    found = {kind.name: kind for kind in (*_of_checks(), *_of_grammar(), *_of_controller())}
    cleared = {name: how for name, _, _, _, how in _rows()}
    return [found[name]._replace(cleared=_cleared(found[name], cleared)) for name in sorted(found)]


def _cleared(kind: Kind, cleared: Mapping[str, str]) -> str:
    return "never active" if kind.severities == (Severity.INFO,) else cleared.get(kind.name, kind.cleared)


def _of_grammar() -> Iterator[Kind]:
    for family in FAMILIES:
        for form in (form for form in family.forms if not form.clears):
            yield Kind(f"{family.check}/{form.code}", (form.severity,), form.summary)


def _of_controller() -> Iterator[Kind]:
    yield Kind("node/silent", (Severity.WARNING,), "the node has not reported for `silence.after_s`", "a report")
    yield Kind("preflight/failed", (Severity.ERROR,), "a preflight without an order failed")
    yield Kind("preflight/inconclusive", (Severity.INFO,), "a preflight without an order reached no verdict")
    yield Kind("preflight/misconfigured", (Severity.INFO,), "a preflight without an order found a wrong setup")
    for kind, meaning in _SLOW.items():
        recorded = () if kind in {Straggler.NODE, Straggler.GPU} else (Severity.INFO,)
        named = _NAMES_A_NODE if kind in _CULPRITS else ()
        yield Kind(f"straggler/{kind.value}", (*recorded, *named), meaning)
    yield Kind("hang/stuck_compute", _NAMES_A_NODE, "a job hangs: a rank has not arrived where the others wait")
    yield Kind("hang/dead_rank", _NAMES_A_NODE, "a job hangs: a rank died")
    yield Kind("hang/network", (Severity.WARNING,), "a job hangs: all ranks are in a collective that does not end")
    yield Kind("hang/nobody", (Severity.WARNING,), "a job hangs, and no single rank can be named")
    yield Kind("sdc/minority", (Severity.ERROR,), "a GPU computes another product than those of its kind in the job")
    yield Kind(
        "sdc/contradiction", _NAMES_A_NODE, "a GPU computed a product differently than before; a warning if once"
    )
    yield Kind(
        "sdc/undecided", (Severity.WARNING,), "GPUs of one kind compute different products, and none can be named"
    )
    yield Kind("lemon/watched", (Severity.INFO,), "a node fails more often than chance explains; it is watched")
    yield Kind("lemon/suspected", (Severity.WARNING,), "a node is likely a lemon and should be tested")
    yield Kind(
        "lemon/confirmed", (Severity.ERROR,), "a node is almost certainly a lemon and should be repaired or replaced"
    )


_CULPRITS = {Straggler.NODE, Straggler.GPU, Straggler.LINK, Straggler.HOST_IO}
_SLOW = {
    Straggler.NODE: "a node slows a job; an error if its own findings agree and leaving breaks even",
    Straggler.GPU: "one GPU slows a job; an error if its node's own findings agree and leaving breaks even",
    Straggler.LINK: "a link slows a job; recorded if its owner is unclear",
    Straggler.HOST_IO: "a node waits for data; recorded if all nodes of the job do",
    Straggler.STAGE: "a stage has more work than the others; if it is on one node, that node may be slow",
    Straggler.DATA: "ranks work on sequences of unequal length; no node is to blame",
    Straggler.GC: "garbage collection of one rank after another; no node is to blame",
    Straggler.APPLICATION: "the program delays single ranks; no node is to blame",
    Straggler.GLOBAL: "all ranks became slower at once; no node is to blame",
}


def _of_checks() -> Iterator[Kind]:
    by_line = {family.check for family in FAMILIES} | {"xid", "sxid", "preflight"}
    for name, check, said, says, _ in _rows():
        if check not in by_line:
            yield Kind(name, _severities(said, says), _meaning(said, check))


def _rows() -> Iterator[tuple[str, str, str, list[str], str]]:
    """Name, check, own text, all texts of the row and clearing of each kind in kinds.md; ` · ` separates the parts of a cell."""
    for row in _ROW.finditer(KINDS.read_text()):
        groups = [re.findall(r"`([a-z0-9_/*N]+)`", group) for group in row["kinds"].split(" · ")]
        says, cleared = row["says"].split(" · "), row["cleared"].split(" · ")
        check = ""
        for place, group in enumerate(groups):
            for word in group:
                check, _, after = word.partition("/") if "/" in word else (check, "", word)
                if check and after:
                    name = f"{check}/{after.replace('N', '*')}"
                    yield name, check, says[min(place, len(says) - 1)], says, cleared[min(place, len(cleared) - 1)]


def _severities(said: str, says: list[str]) -> tuple[Severity, ...]:
    """The severities named here, or else the last ones named before in the same row."""
    for text in (said, *reversed(says[: says.index(said)])):
        found = {Severity(word) for word in _SEVERITY.findall(text)}
        if found:
            return tuple(each for each in Severity if each in found)
    raise ValueError(f"{KINDS.name}: no severity in {said!r}")


def _meaning(said: str, check: str) -> str:
    """The text of the row beside the severity, or else the summary of the check."""
    words = re.sub(r" ?\(?\[[^\]]*\]\([^)]*\)\)?", "", _SEVERITY.sub("", said, count=1)).strip(" ;,:")
    return words or next((line for name in (check, f"{check}s") if (line := _about(name))), "")


def _about(check: str) -> str:
    """The first sentence of a check's module docstring."""
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
    """The rule that answers, per severity if it depends on that."""
    answers = {severity: _answers(policy, kind.name, severity) for severity in kind.severities}
    if len(set(answers.values())) == 1:
        return next(iter(answers.values()))
    return "; ".join(f"{severity.value}: {answer}" for severity, answer in answers.items())


def _answers(policy: Policy, kind: str, severity: Severity) -> str:
    """The unconditional rule, and in brackets the conditional ones before it."""
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
    """Whether the rule may answer such a finding, with whatever evidence it requires."""
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
    return render_prose(" → ".join(stages)) or "recorded, or watched until it clears"
