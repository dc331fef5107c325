from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from healthctl.commands.playbook_command import playbook
from healthctl.main import cli

SITE = "playbook: 1\ninclude: [shipped/default.yaml]\nrules:\n  - {name: ours, why: x, match: {findings: [xid/79]}, steps: [%s]}\n"
SCENARIO = """\
scenarios:
  - name: ours first
    given: [{at: 0, node: n1, finding: xid/79}]
    expect: {decisions: {n1: [%s]}}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["playbook", *arguments])


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "site.yaml"
    path.write_text(SITE % "cordon, replace")
    return path


def test_the_shipped_policy_is_clean_and_says_its_digest() -> None:
    lint = run("lint", "--strict")
    assert (lint.exit_code, "0 problems" in lint.output) == (0, True), lint.output
    assert json.loads(run("lint", "-o", "json").output)["problems"] == []


def test_lint_says_what_a_site_has_overlooked(site: Path) -> None:
    site.write_text(SITE % "cordon")
    lint = run("lint", str(site))
    assert lint.exit_code == 1
    assert "site.yaml:4:5: error: ours takes a node out of service without a way back" in lint.output
    site.write_text((SITE % "cordon, replace").replace("xid/79", "xid/97x"))
    assert (run("lint", str(site)).exit_code, run("lint", "--strict", str(site)).exit_code) == (0, 1)


@pytest.mark.parametrize("command", ["lint", "test"])
def test_a_file_that_is_no_playbook_is_wrong_usage(site: Path, command: str) -> None:
    site.write_text(SITE % "crodon")
    found = run(command, str(site))
    assert found.exit_code == 2
    assert "site.yaml:4:63: 'crodon' is unknown here; did you mean 'cordon'?" in found.output
    assert run(command, "/nowhere.yaml").exit_code == 2


def test_scenarios_beside_a_file_are_run(site: Path) -> None:
    beside = site.with_name("site.scenarios.yaml")
    assert run("test", str(site)).exit_code == 1, "no scenario is no test"
    beside.write_text(SCENARIO % "ours")
    found = run("test", str(site))
    assert (found.exit_code, "1 scenario, 0 failed" in found.output) == (0, True), found.output
    beside.write_text(SCENARIO % "gpu-lost")
    found = run("test", str(site))
    assert found.exit_code == 1
    assert "decided ours (act), expected gpu-lost (act)" in found.output
    beside.write_text(SCENARIO.replace("given", "givn") % "ours")
    assert run("test", str(site)).exit_code == 2


def test_shipped_scenarios_show_what_a_site_has_changed(site: Path) -> None:
    site.with_name("site.scenarios.yaml").write_text(SCENARIO % "ours")
    found = run("test", str(site), "--shipped")
    assert found.exit_code == 1
    assert "a GPU falls off the bus, and its job leaves at once" in found.output


def test_a_rule_without_a_scenario_is_named(site: Path) -> None:
    site.write_text(
        (SITE % "cordon, replace") + "  - {name: other, why: x, match: {findings: [xid/80]}, steps: [watch]}\n"
    )
    site.with_name("site.scenarios.yaml").write_text(SCENARIO % "ours")
    assert "no scenario reaches: other" in run("test", str(site)).output


def test_a_comparison_makes_no_database_where_there_is_none(site: Path) -> None:
    config = site.with_name("remediator.yaml")
    config.write_text(f"database: sqlite:///{site.parent}/r.db\n")
    found = run("diff", str(site), str(site), "--config", str(config))
    assert found.exit_code == 2
    assert "does not exist; run this on" in found.output
    assert not site.with_name("r.db").exists()


@pytest.mark.parametrize("what", ["playbook", "scenarios"])
def test_the_schema_is_json(what: str) -> None:
    assert "$defs" in json.loads(run("schema", what).output)


def test_every_command_has_its_help() -> None:
    for name, command in playbook.commands.items():
        assert command.help, name
