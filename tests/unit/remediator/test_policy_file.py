from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.decide.policy import Policy
from remediator.policy_file import PolicyError, load_policy

GOOD = """\
rules:
  - name: a
    why: because
    match: {findings: [xid/79], severities: [fatal]}
    steps:
      - [drain, {notify_trainer: abort, timeout_s: 60}]
      - replace
"""


def load(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    return load_policy([path])


@pytest.mark.parametrize(
    ("wrong", "right", "line", "says"),
    [
        ("drain", "drian", 6, "'drian' is no step; did you mean 'drain'?"),
        ("abort", "abrot", 6, "'abrot' is no notify_trainer; did you mean 'abort'?"),
        ("fatal", "fatale", 4, "'fatale' is no severity; did you mean 'fatal'?"),
        ("match:", "mach:", 4, "'mach' is no key of a rule; did you mean 'match'?"),
        ("timeout_s: 60", "timeout_s: -1", 6, "'timeout_s' is -1; give seconds"),
        ("timeout_s: 60", "timeout_s: soon", 6, "'timeout_s' is 'soon'"),
        ("why: because", "why: ''", 2, "a rule needs 'why'"),
        ("- replace", "- {replace: , drain: }", 7, "a step has exactly one of"),
        ("- replace", "- 7", 2, "a step must be a mapping"),
        ("    why: because", "    why: because\n    why: twice", 2, "'why' is given twice"),
        ("rules:", "ruls:", 1, "did you mean 'rules'?"),
    ],
)
def test_a_typo_is_named_with_file_line_and_the_nearest_word(
    tmp_path: Path, wrong: str, right: str, line: int, says: str
) -> None:
    with pytest.raises(PolicyError) as error:
        load(tmp_path, GOOD.replace(wrong, right, 1))
    assert says in str(error.value)
    assert "p.yaml" in str(error.value)
    assert f":{line}:" in str(error.value) or f"line {line}" in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "rules: 3", "rules: []", "rules: [x]", "a: [", "\x00", "rules: [{}]"])
def test_what_is_no_playbook_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(PolicyError):
        load(tmp_path, text)


def test_two_rules_of_one_name_are_refused(tmp_path: Path) -> None:
    again = GOOD.split("\n", 1)[1]
    with pytest.raises(PolicyError, match="two rules are called 'a'"):
        load(tmp_path, GOOD + again)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"nowhere\.yaml: cannot be read"):
        load_policy([tmp_path / "nowhere.yaml"])


@given(st.text(max_size=200))
def test_any_text_is_a_policy_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    with contextlib.suppress(PolicyError):
        load(tmp_path_factory.getbasetemp(), text)


def test_the_digest_follows_the_text(tmp_path: Path) -> None:
    first = load(tmp_path, GOOD)
    second = load(tmp_path, GOOD.replace("60", "61"))
    assert first.digest != second.digest
