"""Rules, routes and samples of configuration, by the programs that read them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import skip_or_fail

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "dashboards/prometheus"
ROUTES = ROOT / "dashboards/alertmanager/alertmanager.yaml"
GUIDE = ROOT / "docs/how-to/on-call.md"


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def run(program: str, *arguments: str) -> str:
    if shutil.which(program) is None:
        skip_or_fail(f"no {program} here (tests/system_packages.sh)")
    done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_alert_fires_and_stays_quiet_where_it_should() -> None:
    run("promtool", "test", "rules", str(PROMETHEUS / "tests.yaml"), str(PROMETHEUS / "tests_long.yaml"))


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    cases: dict[str, set[bool]] = {}
    for name in ("tests.yaml", "tests_long.yaml"):
        for test in yaml.safe_load((PROMETHEUS / name).read_text())["tests"]:
            for each in test["promql_expr_test"]:
                if found := re.search(r'ALERTS\{alertname="(\w+)"', each["expr"]):
                    cases.setdefault(found[1], set()).add(bool(each["exp_samples"]))
    assert cases == {name: {True, False} for name in alerts()}


def test_every_alert_leads_to_its_section_of_the_guide() -> None:
    headings = re.findall(r"^### (\w+)$", GUIDE.read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(alerts()), "one section for each alert, and no other"
    for name, rule in alerts().items():
        assert rule["annotations"]["runbook_url"].endswith(f"/how-to/on-call.html#{name.lower()}")
        assert set(rule["annotations"]) == {"summary", "todo", "runbook_url"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_every_section_says_what_to_do_and_how_to_stop_it() -> None:
    for section in re.split(r"^### ", GUIDE.read_text(), flags=re.MULTILINE)[1:]:
        for word in ("**Means:**", "**By itself:**", "**Do:**", "**Stop:**"):
            assert word in section, section.splitlines()[0]


@pytest.mark.parametrize("path", sorted((ROOT / "deploy/prometheus").glob("*.yaml")), ids=lambda path: path.name)
def test_samples_of_configuration_are_read(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path.parent, tmp_path / "etc")
    (tmp_path / "etc/rules").mkdir()
    for name in ("recording.yaml", "alerts.yaml"):
        shutil.copy(PROMETHEUS / name, tmp_path / "etc/rules" / name)
    text = (tmp_path / "etc" / path.name).read_text()
    for named in set(re.findall(r"\w+_file: (/[^\s,}]+)", text)):  # a site's own files
        stand_in = tmp_path / Path(named).name
        stand_in.write_text("")
        text = text.replace(named, str(stand_in))
    # Debian's Prometheus is built without Kubernetes: there the rest of that sample is checked.
    text = re.sub(r"kubernetes_sd_configs: \[.*\]", 'static_configs: [{targets: ["10.0.0.1:1"]}]', text)
    (tmp_path / "etc" / path.name).write_text(text)
    said = run("promtool", "check", "config", str(tmp_path / "etc" / path.name))
    assert "rules found" in said


def test_the_routes_are_read() -> None:
    assert "3 receivers" in run("amtool", "check-config", str(ROUTES))


@pytest.mark.parametrize("name", sorted(alerts()))
def test_an_alert_goes_where_its_severity_says(name: str) -> None:
    labels = alerts()[name]["labels"] | {"alertname": name, "cluster": "a", "node": "n1"}
    receiver = {"critical": "pager", "warning": "day", "info": "record"}[labels["severity"]]
    words = [f"{key}={value}" for key, value in labels.items()]
    config = f"--config.file={ROUTES}"
    assert (
        run("amtool", "config", "routes", "test", config, f"--verify.receivers={receiver}", *words).strip() == receiver
    )


def test_what_inhibits_and_what_is_inhibited_exists() -> None:
    for rule in yaml.safe_load(ROUTES.read_text())["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            if found := re.fullmatch(r'alertname(?:=~|!=|=)"([\w|]+)"', matcher):
                assert set(found[1].split("|")) <= set(alerts()), matcher
