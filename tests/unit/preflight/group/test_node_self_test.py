"""A node's own test, run as a child: real programs that answer, lie, complain, or never end."""

from __future__ import annotations

import pytest

from preflight.group.node_self_test import collect_software_facts, run_own_test
from preflight.results import Verdict


def says(document: str, code: int = 0, complaint: str = "") -> tuple[str, ...]:
    return "sh", "-c", f"echo '{document}'; echo '{complaint}' >&2; exit {code}"


@pytest.mark.parametrize(
    ("command", "verdict", "reason"),
    [
        (says('{"verdict": "pass", "reason": ""}'), Verdict.PASS, ""),
        (says('{"verdict": "fail", "reason": "hot", "injected": ["a:b"]}', 1), Verdict.FAIL, "hot"),
        (says('{"verdict": "misconfigured", "reason": "busy"}', 2), Verdict.MISCONFIGURED, "busy"),
        (says('{"verdict": "pass"}', 1), Verdict.INCONCLUSIVE, "is pass, but the test ended with 1"),
        (says("", 9, "no torch"), Verdict.INCONCLUSIVE, "ended with 9 and no document: no torch"),
        (says('{"verdict": "splendid"}'), Verdict.INCONCLUSIVE, "no document"),
        (("sleep", "1000"), Verdict.INCONCLUSIVE, "did not end within 0.5 s"),
        (("/does/not/exist",), Verdict.INCONCLUSIVE, "cannot be started"),
    ],
)
def test_only_a_document_that_agrees_with_its_exit_code_counts(
    command: tuple[str, ...], verdict: Verdict, reason: str
) -> None:
    seconds = 0.5 if command[0] == "sleep" else 60
    own = run_own_test(command, seconds)
    assert own.verdict is verdict
    assert reason in own.reason


def test_this_machine_tells_its_software(monkeypatch: pytest.MonkeyPatch) -> None:
    assert collect_software_facts()
    monkeypatch.setattr("preflight.group.node_self_test.FACTS", says("", 1, "the driver hangs"))
    assert collect_software_facts() is None
