from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.decisions.policy import Policy
from remediator.model.plan_steps import Mode, Verb
from remediator.playbook.playbook_errors import PolicyError
from remediator.playbook.playbook_loader import load_policy, playbook_files

GOOD = """\
playbook: 1
rules:
  - name: a
    why: because
    match: {findings: [xid/79], severities: [fatal]}
    steps:
      - [cordon, {notify_trainer: abort, timeout_s: 60}]
      - replace
"""


def load(tmp_path: Path, text: str, **files: str) -> Policy:
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(content)
    path = tmp_path / "p.yaml"
    path.write_text(text)
    return load_policy([path])


@pytest.mark.parametrize(
    ("right", "wrong", "place", "says"),
    [
        ("[cordon,", "[crodon,", "7:10", "'crodon' is unknown here; did you mean 'cordon'?"),
        ("abort", "abrot", "7:35", "'abrot' is unknown here; did you mean 'abort'?"),
        ("fatal", "fatale", "5:46", "'fatale' is unknown here; did you mean 'fatal'?"),
        ("match:", "mach:", "5:5", "'mach' is not a key here; did you mean 'match'?"),
        ("severities:", "severity:", "5:33", "'severity' is not a key here; did you mean 'severities'?"),
        ("notify_trainer:", "notify_trainr:", "7:19", "did you mean 'notify_trainer'?"),
        ("timeout_s: 60", "timeout_s: -1", "7:53", "'timeout_s': expected `float` > 0.0"),
        ("timeout_s: 60", "timeout_s: soon", "7:53", "'timeout_s': expected `float | null`, got `str`"),
        ("why: because", "why: ''", "4:10", "'why': expected `str` of length >= 1"),
        ("    why: because\n", "", "3:5", "object missing required field `why`"),
        ("- replace", "- {replace: , drain: }", "8:9", "a step must have exactly one of"),
        ("- replace", "- {timeout_s: 3}", "8:9", "this has none"),
        ("- replace", "- []", "8:9", "a stage without steps"),
        ("- replace", "- 7", "8:9", "got `int`"),
        ("- replace", "- reset_gpu", "8:9", "'reset_gpu' would disrupt running work; put 'drain' in an earlier stage"),
        ("[cordon, ", "[replace, ", "7:10", "'replace' needs 'cordon' or 'drain' in an earlier stage"),
        ("- replace", "- {preflight: gate, on_failure: reset_gpu}", "8:9", "would disrupt running work"),
        ("- replace", "- {preflight: gate, retry: {times: 0}}", "8:34", "give 'times' from 1 to 100"),
        ("- replace", "- return_to_service", "8:9", "a node returns only after a test"),
        (
            "- replace",
            "- {preflight: gate, mode: recommend}",
            "8:9",
            "'preflight: gate' in mode recommend or observe would leave the node in an undefined state",
        ),
        ("- replace", "- drain\n      - {notify_trainer: abort}", "9:9", "no rank remains to notify"),
        ("- replace", "- replace\n      - drain", "8:9", "'replace' ends a plan"),
        (
            "{findings: [xid/79]",
            "{history: [{within_s: 9, at_least: 3, at_most: 1}]",
            "5:23",
            "'at_least' is above 'at_most'",
        ),
        ("{findings: [xid/79]", "{together: {within_s: 86400}", "5:34", "'within_s': expected `float` <= 3600"),
        ("playbook: 1", "playbook: !!bool abc", "1:11", "cannot be parsed"),
        ("    why: because", "    why: because\n    why: twice", "5:5", "'why' is given twice"),
        ("rules:", "ruls:", "2:1", "'ruls' is not a key here; did you mean 'rules'?"),
        ("playbook: 1", "playbook: 2", "1:11", "is unknown here; known: 1"),
        ("name: a", "name: A b", "3:11", "'name':"),
        ("{findings: [xid/79]", "{history: [{within_s: 60}]", "5:23", "needs 'at_least' or 'at_most'"),
        (
            "{findings: [xid/79]",
            "{history: [{within_s: 9000000, at_least: 1}]",
            "5:34",
            "'within_s': expected `float` <=",
        ),
        ("{findings: [xid/79]", "{architectures: [hoper]", "5:29", "did you mean 'hopper'?"),
        ("rules:", "a: &a [x]\nrules:", "2:1", "'a' is not a key here"),
    ],
)
def test_a_mistake_is_named_with_file_line_column_and_the_nearest_word(
    tmp_path: Path, right: str, wrong: str, place: str, says: str
) -> None:
    assert right in GOOD
    with pytest.raises(PolicyError) as error:
        load(tmp_path, GOOD.replace(right, wrong, 1))
    assert says in str(error.value)
    assert f"p.yaml:{place}: " in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "playbook: 1",
        "playbook: 1\nrules: 3",
        "a: [",
        "\x00",
        "playbook: 1\nrules: [{}]",
        "{[a]: b}",
        "&a [*a]",
    ],
)
def test_what_is_no_playbook_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(PolicyError):
        load(tmp_path, text)


def test_aliases_cannot_blow_a_small_file_up(tmp_path: Path) -> None:
    layers = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))
    with pytest.raises(PolicyError, match="too many aliases"):
        load(tmp_path, f"playbook: 1\na0: &a0 [x]\n{layers}\n")


@given(st.text(max_size=200))
def test_any_text_is_a_policy_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    with contextlib.suppress(PolicyError):
        load(tmp_path_factory.getbasetemp(), text)


def test_a_missing_file_is_named_and_who_wanted_it(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"nowhere\.yaml: cannot be read"):
        load_policy([tmp_path / "nowhere.yaml"])
    with pytest.raises(PolicyError, match=r"p\.yaml:2:11: .*nowhere\.yaml: cannot be read"):
        load(tmp_path, "playbook: 1\ninclude: [nowhere.yaml]\n")


@pytest.mark.parametrize("name", ['"a\\0b.yaml"', '"\\ud800.yaml"', "loop.yaml"])
def test_a_name_that_no_file_can_have_is_a_clear_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(PolicyError, match=r"p\.yaml"):
        load(tmp_path, f"playbook: 1\ninclude: [{name}]\n")


def test_the_digest_follows_every_byte_of_every_file(tmp_path: Path) -> None:
    site = "playbook: 1\ninclude: [b.yaml]\n"
    first = load(tmp_path, site, b=GOOD)
    assert first.digest == load(tmp_path, site, b=GOOD).digest
    assert first.digest != load(tmp_path, site, b=GOOD + "# more\n").digest


def test_own_rules_come_before_included_ones_and_overrides_change_a_rule_where_it_stands(tmp_path: Path) -> None:
    site = """\
playbook: 1
include: [b.yaml]
rules: [{name: mine, why: mine}]
override: [{rule: a, mode: approve, guards: {spares: 2}}]
"""
    policy = load(tmp_path, site, b=GOOD.replace("steps:", "mode: act\n    steps:"))
    assert [rule.name for rule in policy.rules] == ["mine", "a"]
    changed = policy.by_name["a"]
    assert (changed.mode, changed.guards.spares, changed.why) == (Mode.APPROVE, 2, "because")
    assert [step.verb for step in changed.steps] == [Verb.CORDON, Verb.NOTIFY_TRAINER, Verb.REPLACE]
    assert "p.yaml:4:12 over" in changed.place


def test_a_rule_of_an_included_file_can_be_switched_off(tmp_path: Path) -> None:
    site = "playbook: 1\ninclude: [b.yaml]\nrules: [{name: mine, why: x}]\noverride: [{rule: a, enabled: false}]\n"
    assert [rule.name for rule in load(tmp_path, site, b=GOOD).rules] == ["mine"]


def test_an_override_of_nothing_names_the_nearest_rule(tmp_path: Path) -> None:
    site = "playbook: 1\ninclude: [b.yaml]\noverride: [{rule: gpu-losst}]\n"
    with pytest.raises(PolicyError, match=r"p\.yaml:3:19: no included rule .* did you mean 'gpu-lost'"):
        load(tmp_path, site, b=GOOD.replace("name: a", "name: gpu-lost"))


def test_two_rules_of_one_name_are_refused_with_both_places(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"b\.yaml:3:5: a rule called 'a' already exists at .*p\.yaml:3:5"):
        load(tmp_path, GOOD + "include: [b.yaml]\n", b=GOOD)


def test_files_that_include_each_other_are_read_once(tmp_path: Path) -> None:
    other = GOOD.replace("name: a", "name: b") + "include: [p.yaml, b.yaml]\n"
    policy = load(tmp_path, GOOD + "include: [b.yaml]\n", b=other)
    assert [rule.name for rule in policy.rules] == ["a", "b"]
    assert [path.name for path in playbook_files(tmp_path / "p.yaml")] == ["p.yaml", "b.yaml"]


def test_shipped_files_can_be_included_from_anywhere(tmp_path: Path) -> None:
    policy = load(
        tmp_path, "playbook: 1\ninclude: [shipped/default.yaml]\noverride: [{rule: gpu-lost, mode: approve}]\n"
    )
    assert policy.by_name["gpu-lost"].mode is Mode.APPROVE
    assert "unknown" in policy.by_name


def test_only_hooks_that_the_configuration_lists_may_be_named(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(GOOD.replace("- replace", "- {exec: power-cicle}\n      - replace"))
    load_policy([path])
    with pytest.raises(PolicyError, match=r"no hook 'power-cicle' .*did you mean 'power-cycle'"):
        load_policy([path], hooks=["power-cycle"])
    path.write_text("playbook: 1\ninclude: [shipped/default.yaml]\noverride: [{rule: warning, steps: [{exec: x}]}]\n")
    with pytest.raises(PolicyError, match="no hook 'x'"):
        load_policy([path], hooks=[])
