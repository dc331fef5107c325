"""Rules, routes and samples of configuration, by the programs that read them."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
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
            for each in test.get("promql_expr_test", ()):
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


SAMPLES = sorted((ROOT / "deploy/prometheus").glob("*.yaml"))


def put_up(path: Path, place: Path, *replacements: tuple[str, str]) -> Path:
    """A sample where it can be read: with the rules beside it, and empty files in place of a site's own."""
    shutil.copytree(path.parent, place / "etc")
    (place / "etc/rules").mkdir()
    for name in ("recording.yaml", "alerts.yaml"):
        shutil.copy(PROMETHEUS / name, place / "etc/rules" / name)
    text = path.read_text()
    for pattern, instead in replacements:
        text = re.sub(pattern, instead, text)
    for named in set(re.findall(r"\w+_file: (/[^\s,}]+)", text)):
        stand_in = place / Path(named).name
        stand_in.write_text("")
        text = text.replace(named, str(stand_in))
    (place / "etc" / path.name).write_text(text)
    return place / "etc" / path.name


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_samples_of_configuration_are_read(path: Path, tmp_path: Path) -> None:
    # Debian's Prometheus is built without Kubernetes: there the rest of that sample is checked.
    static = (r"kubernetes_sd_configs: \[.*\]", 'static_configs: [{targets: ["10.0.0.1:1"]}]')
    assert "rules found" in run("promtool", "check", "config", str(put_up(path, tmp_path, static)))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_samples_name_the_jobs_that_rules_ask_for(path: Path) -> None:
    jobs = [each["job_name"] for each in yaml.safe_load(path.read_text())["scrape_configs"]]
    assert jobs == ["healthd", "remediator"]


class _Inventory(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps([{"targets": ["gpu-001.example:15190"], "labels": {"rack": "r01"}}]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def inventory() -> Iterator[str]:
    """Answers as a site's inventory does."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Inventory)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("name", ["prometheus.yaml", "prometheus-http-sd.yaml"])
def test_targets_get_the_labels_that_dashboards_ask_for(name: str, inventory: str, tmp_path: Path) -> None:
    config = put_up(ROOT / "deploy/prometheus" / name, tmp_path, (r"url: https://\S+", f"url: {inventory}"))
    for seconds in (1, 5, 30):  # it listens for so long, whatever it has heard
        found = json.loads(
            run("promtool", "check", "service-discovery", f"--timeout={seconds}s", str(config), "healthd")
        )
        if found:
            break
    labelled = {each["labels"]["node"]: each["labels"] for each in found}  # promtool keeps no order
    assert {key: labelled["gpu-001"][key] for key in ("cluster", "rack")} == {"cluster": "main", "rack": "r01"}


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
