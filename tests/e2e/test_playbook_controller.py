"""A real remediator whose policy is reloaded, asks for approval, and explains itself."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from controller_process import Controller
from test_remediator_api import pending, report

SITE = """\
playbook: 1
include: [shipped/default.yaml]
rules:
  - name: ours
    why: we know this row
    mode: approve
    match: {findings: [row_remap/pending]}
    steps:
      - [cordon, {alert: a row}]
      - {exec: note}
      - drain
      - {preflight: gate}
      - return_to_service
"""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = Controller(tmp_path)
    (tmp_path / "site.yaml").write_text(SITE)
    note = f"import sys; open({str(tmp_path / 'noted')!r}, 'a').write(sys.stdin.read() + chr(10))"
    hook = f'{{command: [{sys.executable}, -c, "{note}"]}}'
    with controller.config.open("a") as config:
        config.write(f"playbooks: [{tmp_path}/site.yaml]\nhooks: {{note: {hook}}}\n")
    controller.start()
    yield controller
    if controller.process is not None and controller.process.poll() is None:
        controller.end(signal.SIGKILL)


def healthctl(controller: Controller, *arguments: str) -> subprocess.CompletedProcess[str]:
    token = controller.config.with_name("ann.token")
    token.write_text(controller.tokens["ann"])
    server = ("--server", controller.url, "--token-file", str(token))
    command = [sys.executable, "-m", "healthctl", *arguments, *server]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def until(question: Callable[[], bool], words: str) -> None:
    deadline = time.monotonic() + 90
    while not question():
        assert time.monotonic() < deadline, words
        time.sleep(0.05)


def incident_of(controller: Controller) -> str:
    found: list[str] = []

    def there() -> bool:
        found[:] = [i["id"] for i in controller.call("GET", "/v1/incidents", "ann").json()["incidents"]]
        return bool(found)

    until(there, "no incident")
    return found[0]


def test_a_plan_waits_for_a_person_then_runs_its_hook_once_and_explains_itself(controller: Controller) -> None:
    controller.call("POST", "/v1/nodes/n1/report", "n1", data=report(findings=(pending(),)))
    incident = incident_of(controller)
    shown = healthctl(controller, "incidents", "show", incident).stdout
    assert "AWAITING APPROVAL" in shown
    looked = healthctl(controller, "status")
    assert looked.returncode == 1, looked.stderr
    assert f"approve: healthctl actions approve {incident}" in looked.stdout
    for wrong in ('{"what": "x"}', "{}", "[]"):
        assert controller.call("POST", f"/v1/incidents/{incident}/approve", "ann", data=wrong).status_code in (400, 409)
    assert controller.call("POST", f"/v1/incidents/{incident}/approve", "n1", data="{}").status_code == 403

    unasked = healthctl(controller, "incidents", "approve", incident)
    assert unasked.returncode == 2
    assert "--yes" in unasked.stderr
    touched = healthctl(controller, "incidents", "approve", incident, "--dry-run")
    assert "automation may isolate" in touched.stdout, touched.stderr
    approved = healthctl(controller, "incidents", "approve", incident, "--yes")
    assert approved.returncode == 0, approved.stderr
    assert "approved: the plan of ours" in approved.stdout
    noted = controller.config.with_name("noted")
    until(noted.exists, "the hook did not run")
    assert healthctl(controller, "incidents", "approve", incident).returncode == 2
    said = healthctl(controller, "playbook", "explain", incident).stdout
    assert "ours → approve" in said
    assert "ours → act" in said
    assert "row-remap-pending" in said, "the shipped rule was considered too"
    events = controller.call("GET", "/v1/events", "ann").json()["events"]
    assert [e["actor"] for e in events if e["kind"] == "approved"] == ["ann"]
    assert len(noted.read_text().splitlines()) == 1


def test_a_malformed_playbook_never_replaces_a_good_one(controller: Controller) -> None:
    site = controller.config.with_name("site.yaml")
    before = controller.call("GET", "/v1/status", "ann").json()["policy"]
    assert controller.process is not None

    site.write_text(SITE.replace("cordon", "crodon"))
    controller.process.send_signal(signal.SIGHUP)

    def said() -> str:
        return " ".join(controller.call("GET", "/v1/status", "ann").json().get("blocked", ()))

    until(lambda: "did you mean 'cordon'?" in said(), "the mistake is not shown")
    assert "site.yaml:9:10" in said()
    assert controller.call("GET", "/v1/status", "ann").json()["policy"] == before

    site.write_text(SITE.replace("we know this row", "we know it well"))
    controller.process.send_signal(signal.SIGHUP)
    until(
        lambda: controller.call("GET", "/v1/status", "ann").json()["policy"] != before, "the new policy is not in force"
    )
    assert "crodon" not in said()
    controller.call("POST", "/v1/nodes/n1/report", "n1", data=report(findings=(pending(),)))
    assert "we know it well" in healthctl(controller, "playbook", "explain", incident_of(controller)).stdout


def test_two_policies_are_compared_over_what_the_cluster_reported(controller: Controller) -> None:
    controller.call("POST", "/v1/nodes/n1/report", "n1", data=report(findings=(pending(),)))
    incident_of(controller)
    site, other = controller.config.with_name("site.yaml"), controller.config.with_name("other.yaml")
    other.write_text("playbook: 1\ninclude: [shipped/default.yaml]\n")
    command = [
        sys.executable,
        "-m",
        "healthctl",
        "playbook",
        "diff",
        str(site),
        str(other),
        "--config",
        str(controller.config),
    ]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert "ours (approve)" in shown
    assert "row-remap-pending (act)" in shown
