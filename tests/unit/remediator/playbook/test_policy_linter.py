from __future__ import annotations

from pathlib import Path

import pytest

from remediator.playbook.playbook_loader import load_policy
from remediator.playbook.policy_linter import ProblemLevel, lint_policy
from vocabulary.finding import Severity

KNOWN = {
    "xid/79": frozenset({Severity.FATAL}),
    "xid/31": frozenset({Severity.INFO}),
    "ecc/*": frozenset({Severity.WARNING, Severity.ERROR}),
}
LAST = "  - {name: unknown, why: x}\n"


def problems(tmp_path: Path, rules: str, last: str = LAST) -> list[tuple[ProblemLevel, str]]:
    path = tmp_path / "p.yaml"
    path.write_text(f"playbook: 1\nrules:\n{rules}{last}")
    return [(p.level, p.text) for p in lint_policy(load_policy([path]), KNOWN)]


ALL = "  - {name: all, why: x, match: {findings: [xid/*, ecc/*]}}\n"


def test_a_policy_that_covers_everything_is_clean(tmp_path: Path) -> None:
    assert problems(tmp_path, ALL) == []


@pytest.mark.parametrize(
    ("rules", "level", "says"),
    [
        ("  - {name: a, why: x, match: {findings: [xid/79]}}\n" + ALL.replace("all", "b"), None, ""),
        (
            ALL + "  - {name: b, why: x, match: {findings: [xid/79]}}\n",
            ProblemLevel.ERROR,
            "b is never reached: all matches",
        ),
        (ALL + "  - {name: b, why: x, match: {findings: [ecc/any]}}\n", ProblemLevel.ERROR, "b is never reached"),
        (
            ALL + "  - {name: b, why: x, match: {findings: [ecc/any], severities: [error]}}\n",
            ProblemLevel.ERROR,
            "b is never reached",
        ),
        ("  - {name: a, why: x, match: {findings: [xid/31, xid/79]}}\n" + ALL, None, ""),
        (
            "  - {name: a, why: x, match: {findings: [xid/31]}}\n" + ALL.replace("xid/*,", "xid/31, xid/79,"),
            ProblemLevel.WARNING,
            "all: xid/31 never reach it: a matches first",
        ),
        ("  - {name: a, why: x, match: {findings: [xid/7]}}\n" + ALL, ProblemLevel.WARNING, "did you mean 'xid/79'?"),
        (
            "  - {name: a, why: x, match: {findings: [xid/79], history: [{of: [exx/1], at_least: 1, within_s: 9}]}}\n"
            + ALL,
            ProblemLevel.WARNING,
            "no known finding is called 'exx/1'",
        ),
        (
            "  - {name: a, why: x, match: {findings: [xid/79], history: [{of: [action/reboot], at_least: 1, within_s: 9}]}}\n"
            + ALL,
            None,
            "",
        ),
        ("  - {name: a, why: x, match: {findings: [xid/*]}}\n", ProblemLevel.ERROR, "ecc/any (error) is not covered"),
        (
            "  - {name: a, why: x, match: {findings: [xid/*], job: running}}\n" + ALL.replace("xid/*, ", ""),
            ProblemLevel.ERROR,
            "xid/79 (fatal) is not covered: no rule matches it in every state of its node",
        ),
        (
            "  - {name: a, why: x, match: {findings: [xid/79], severities: [info]}}\n" + ALL,
            ProblemLevel.ERROR,
            "a never matches",
        ),
        (
            "  - {name: a, why: x, match: {findings: [xid/79], together: {any: [ecx/1]}}}\n" + ALL,
            ProblemLevel.WARNING,
            "'ecx/1'",
        ),
        (
            "  - {name: a, why: x, match: {findings: [xid/79], history: [{of: [rule/al], at_least: 1, within_s: 9}]}}\n"
            + ALL,
            ProblemLevel.WARNING,
            "no known finding is called 'rule/al'; did you mean 'rule/all'?",
        ),
        (
            "  - {name: a, why: x, match: {findings: [xid/79], history: [{of: [action/retrun], at_least: 1, within_s: 9}]}}\n"
            + ALL,
            ProblemLevel.WARNING,
            "no known finding is called 'action/retrun'",
        ),
        (
            ALL.replace("}}", "}, guards: {drained: true}, steps: [cordon, preflight, return_to_service]}"),
            ProblemLevel.ERROR,
            "all waits for the node to drain before it drains the node",
        ),
        (
            ALL.replace("}}", "}, steps: [cordon]}"),
            ProblemLevel.ERROR,
            "all takes a node out of service without a way back",
        ),
        (ALL.replace("}}", "}, steps: [cordon, preflight, return_to_service]}"), None, ""),
        (ALL.replace("}}", "}, steps: [cordon, replace]}"), None, ""),
        (
            ALL.replace("}}", "}, steps: [{notify_trainer: revert}]}"),
            ProblemLevel.ERROR,
            "all: xid/*, ecc/*: 'revert' needs a finding with a last good step",
        ),
        (
            "  - {name: a, why: x, steps: [{notify_trainer: revert}]}\n" + ALL,
            ProblemLevel.ERROR,
            "a: any finding: 'revert' needs a finding with a last good step",
        ),
        (ALL.replace("}}", "}, steps: [{notify_trainer: save_and_stop}]}"), None, ""),
    ],
)
def test_what_lint_says(tmp_path: Path, rules: str, level: ProblemLevel | None, says: str) -> None:
    found = problems(tmp_path, rules)
    if level is None:
        assert found == []
    else:
        assert any(said is level and says in text for said, text in found), found


def test_a_policy_needs_an_answer_to_the_unknown(tmp_path: Path) -> None:
    found = problems(tmp_path, ALL, last="")
    assert (ProblemLevel.ERROR, "the last rule, all, does not match everything: remove its 'match'") in found
