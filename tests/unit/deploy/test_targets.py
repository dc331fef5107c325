"""Prometheus' targets of what the controller knows, by a real healthctl; read by a real promtool."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remediator.model.views import NodeList, NodeView
from tests.conftest import skip_or_fail
from tests.unit.deploy.chart import DEPLOY
from tests.unit.healthctl.stub_controller import SmallCentre

PROGRAM = DEPLOY / "prometheus" / "targets.py"
HEALTHCTL = Path(sys.executable).with_name("healthctl")
BEFORE = "[]\n"


@pytest.fixture
def centre() -> Iterator[SmallCentre]:
    made = SmallCentre()
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "healthd.yaml").write_text(BEFORE)
    return tmp_path / "targets" / "healthd.yaml"


def nodes(**states: str) -> NodeList:
    return NodeList(tuple(NodeView(name, state, "healthy", 0.0, "", 1.0) for name, state in states.items()))


def write(centre: SmallCentre, file: Path) -> subprocess.CompletedProcess[str]:
    token = file.with_name("token")
    token.write_text("viewer")
    token.chmod(0o600)
    return subprocess.run(
        [sys.executable, PROGRAM, "--cluster", "main", "--healthctl", HEALTHCTL, file],
        env={**os.environ, "HEALTHCTL_SERVER": centre.url, "HEALTHCTL_TOKEN_FILE": str(token)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_prometheus_finds_every_node_that_is_not_retired(centre: SmallCentre, file: Path) -> None:
    if shutil.which("promtool") is None:
        skip_or_fail("no promtool here (tests/system_packages.sh)")
    centre.answers["/v1/nodes"] = nodes(n1="healthy", n2="retired", n3="quarantined")
    done = write(centre, file)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in file.parent.iterdir() if path.name != "token"] == [file.name]
    (file.parents[1] / "ca.pem").write_text("")
    config = file.parents[1] / "prometheus.yaml"
    sample = (DEPLOY / "prometheus" / "prometheus.yaml").read_text()
    config.write_text(sample.replace("/etc/gpu-healthd/ca.pem", str(config.with_name("ca.pem"))))
    found: list[dict[str, dict[str, str]]] = []
    for seconds in (1, 5, 30):  # it listens for so long, whatever it has heard
        command = ["promtool", "check", "service-discovery", f"--timeout={seconds}s", config, "healthd"]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        if found:
            break
    shown = {(each["labels"]["node"], each["labels"]["cluster"], each["labels"]["__address__"]) for each in found}
    assert shown == {("n1", "main", "n1:15190"), ("n3", "main", "n3:15190")}


def test_a_centre_that_knows_nobody_takes_no_target_away(centre: SmallCentre, file: Path) -> None:
    centre.answers["/v1/nodes"] = nodes(n2="retired")
    done = write(centre, file)
    assert (done.returncode, file.read_text()) == (1, BEFORE)
    assert done.stderr == f"{file} is unchanged: the controller has no node\n"


def test_a_centre_that_says_no_takes_no_target_away(centre: SmallCentre, file: Path) -> None:
    done = write(centre, file)
    assert (done.returncode, file.read_text()) == (1, BEFORE)
    assert f"{file} is unchanged: the controller did not answer" in done.stderr
