"""The shipped playbooks: every scenario beside them comes true, lint finds nothing, every rule is reached."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from healthctl.finding_kinds import known_kinds
from remediator.decisions.policy import Policy
from remediator.model.plan_steps import Verb
from remediator.playbook.json_schemas import json_schema_text
from remediator.playbook.playbook_loader import SHIPPED, SHIPPED_FOLDER, load_policy, playbook_files
from remediator.playbook.policy_linter import lint_policy
from remediator.playbook.scenario_document import ScenarioDocument
from remediator.playbook.scenario_runner import run_scenario, scenario_path
from remediator.playbook.yaml_source import read_yaml_record
from vocabulary.fault_catalogue.catalogue_file import load_catalogue

CATALOGUE = load_catalogue()
ALTERNATIVES = sorted((SHIPPED_FOLDER / "alternatives").glob("*[!s].yaml"))
PLAYBOOKS = [*playbook_files(SHIPPED), *(p for p in ALTERNATIVES if not p.name.endswith(".scenarios.yaml"))]
POLICY = load_policy([SHIPPED])


def policy_of(playbook: Path) -> Policy:
    return load_policy([playbook]) if playbook.parent.name == "alternatives" else POLICY


def scenarios() -> list[tuple[Path, int, str]]:
    found = []
    for playbook in PLAYBOOKS:
        path = scenario_path(playbook)
        if path.exists():
            found += [
                (playbook, i, s.name) for i, s in enumerate(read_yaml_record(path, ScenarioDocument).record.scenarios)
            ]
    return found


SCENARIOS = scenarios()


@pytest.mark.parametrize(("playbook", "index"), [s[:2] for s in SCENARIOS], ids=[s[2] for s in SCENARIOS])
def test_a_scenario_comes_true(playbook: Path, index: int) -> None:
    scenario = read_yaml_record(scenario_path(playbook), ScenarioDocument).record.scenarios[index]
    assert run_scenario(scenario, policy_of(playbook), CATALOGUE).problems == ()


@pytest.mark.parametrize("playbook", [p for p in PLAYBOOKS if p != SHIPPED.resolve()], ids=lambda p: p.name)
def test_every_playbook_has_its_timelines_and_every_rule_is_reached(playbook: Path) -> None:
    policy = policy_of(playbook)
    found = read_yaml_record(scenario_path(playbook), ScenarioDocument).record.scenarios
    reached = {rule for scenario in found for rule in run_scenario(scenario, policy, CATALOGUE).rules}
    own = {rule.name for rule in policy.rules if rule.stages and rule.place.startswith(f"{playbook}:")}
    assert own - reached == set()


@pytest.mark.parametrize("playbook", [SHIPPED, *ALTERNATIVES], ids=lambda p: p.name)
def test_lint_finds_nothing(playbook: Path) -> None:
    if not playbook.name.endswith(".scenarios.yaml"):
        assert [str(p) for p in lint_policy(load_policy([playbook]), known_kinds(CATALOGUE))] == []


def test_a_gpu_off_the_bus_is_isolated_at_once_and_never_only_rebooted() -> None:
    rule = POLICY.by_name["gpu-lost"]
    assert "xid/79" in rule.match.findings
    assert [step.verb for step in rule.stages[0]][:2] == [Verb.CORDON, Verb.NOTIFY_TRAINER]
    assert Verb.REBOOT not in {step.verb for step in rule.steps}
    assert rule.stages[-1][0].verb is Verb.REPLACE


def test_a_contained_memory_error_replaces_nothing_by_itself() -> None:
    rule = POLICY.by_name["contained-memory-error"]
    assert rule.match.findings == ("xid/94",)
    assert rule.stages[-1][0].verb is Verb.RETURN_TO_SERVICE


@pytest.mark.parametrize("what", ["playbook", "scenarios"])
def test_the_published_schema_is_the_one_that_is_enforced(what: str) -> None:
    assert (SHIPPED_FOLDER / "schema" / f"{what}.json").read_text() == json_schema_text(what), (
        f"run: healthctl playbook schema {what} > playbooks/schema/{what}.json"
    )


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda p: p.name)
def test_editors_take_what_we_ship_and_refuse_a_slip_of_the_pen(playbook: Path) -> None:
    document = yaml.safe_load(playbook.read_text())
    schema = yaml.safe_load(json_schema_text("playbook"))
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "ruels": []}, schema)
    assert playbook.read_text().startswith("# yaml-language-server: $schema=")
    if scenario_path(playbook).exists():
        jsonschema.validate(
            yaml.safe_load(scenario_path(playbook).read_text()), yaml.safe_load(json_schema_text("scenarios"))
        )
