"""The shipped playbooks: every scenario beside them comes true, lint finds nothing, every rule is reached."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from healthctl.known_kinds import known_kinds
from remediator.decide.policy import Policy
from remediator.model.plan import Verb
from remediator.playbook.lint import lint
from remediator.playbook.load import SHIPPED, SHIPPED_FOLDER, files_of, load_policy
from remediator.playbook.scenario import ScenarioDocument
from remediator.playbook.schema import schema_of
from remediator.playbook.text import read
from remediator.playbook.trial import run, scenarios_beside
from vocabulary.catalogue_file import load_catalogue

CATALOGUE = load_catalogue()
ALTERNATIVES = sorted((SHIPPED_FOLDER / "alternatives").glob("*[!s].yaml"))
PLAYBOOKS = [*files_of(SHIPPED), *(p for p in ALTERNATIVES if not p.name.endswith(".scenarios.yaml"))]
POLICY = load_policy([SHIPPED])


def policy_of(playbook: Path) -> Policy:
    return load_policy([playbook]) if playbook.parent.name == "alternatives" else POLICY


def scenarios() -> list[tuple[Path, int, str]]:
    found = []
    for playbook in PLAYBOOKS:
        path = scenarios_beside(playbook)
        if path.exists():
            found += [(playbook, i, s.name) for i, s in enumerate(read(path, ScenarioDocument).record.scenarios)]
    return found


SCENARIOS = scenarios()


@pytest.mark.parametrize(("playbook", "index"), [s[:2] for s in SCENARIOS], ids=[s[2] for s in SCENARIOS])
def test_a_scenario_comes_true(playbook: Path, index: int) -> None:
    scenario = read(scenarios_beside(playbook), ScenarioDocument).record.scenarios[index]
    assert run(scenario, policy_of(playbook), CATALOGUE).problems == ()


@pytest.mark.parametrize("playbook", [p for p in PLAYBOOKS if p != SHIPPED.resolve()], ids=lambda p: p.name)
def test_every_playbook_has_its_timelines_and_every_rule_is_reached(playbook: Path) -> None:
    policy = policy_of(playbook)
    found = read(scenarios_beside(playbook), ScenarioDocument).record.scenarios
    reached = {rule for scenario in found for rule in run(scenario, policy, CATALOGUE).rules}
    own = {rule.name for rule in policy.rules if rule.stages and rule.place.startswith(f"{playbook}:")}
    assert own - reached == set()


@pytest.mark.parametrize("playbook", [SHIPPED, *ALTERNATIVES], ids=lambda p: p.name)
def test_lint_finds_nothing(playbook: Path) -> None:
    if not playbook.name.endswith(".scenarios.yaml"):
        assert [str(p) for p in lint(load_policy([playbook]), known_kinds(CATALOGUE))] == []


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
    assert (SHIPPED_FOLDER / "schema" / f"{what}.json").read_text() == schema_of(what), (
        f"run: healthctl playbook schema {what} > playbooks/schema/{what}.json"
    )


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda p: p.name)
def test_editors_take_what_we_ship_and_refuse_a_slip_of_the_pen(playbook: Path) -> None:
    document = yaml.safe_load(playbook.read_text())
    schema = yaml.safe_load(schema_of("playbook"))
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "ruels": []}, schema)
    assert playbook.read_text().startswith("# yaml-language-server: $schema=")
    if scenarios_beside(playbook).exists():
        jsonschema.validate(
            yaml.safe_load(scenarios_beside(playbook).read_text()), yaml.safe_load(schema_of("scenarios"))
        )
