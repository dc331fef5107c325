"""What is shipped for gating a job: the manifest has the published shape, and its gate is a command that exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from preflight.group.group_command import group
from preflight.group.launchers.launcher_detection import detect_placement
from tests.nodes.fake_kubernetes.schema import problems

DEPLOY = Path(__file__).parents[3] / "deploy"
DOCUMENTS = {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes" / "gated-job.yaml").read_text())}
JOB: dict[str, Any] = DOCUMENTS["Job"]["spec"]
GATE: dict[str, Any] = JOB["template"]["spec"]["initContainers"][0]


def test_the_gated_job_has_the_published_shape() -> None:
    for kind, document in DOCUMENTS.items():
        assert list(problems(document, f"V1{kind}")) == []


def test_its_pods_are_a_group_as_preflight_reads_it() -> None:
    environ = {each["name"]: each.get("value", "gpu-7") for each in GATE["env"]} | {"JOB_COMPLETION_INDEX": "1"}
    place = detect_placement(environ, "pod")
    assert (place.launcher, place.world, place.node) == ("kubernetes", JOB["completions"], "gpu-7")
    assert place.world == JOB["parallelism"]
    service = DOCUMENTS["Service"]
    assert place.address == f"{DOCUMENTS['Job']['metadata']['name']}-0.{service['metadata']['name']}"
    assert place.run
    assert GATE["envFrom"] == [{"secretRef": {"name": "gated-group"}}]  # --tell is refused without a key
    assert "envFrom" not in JOB["template"]["spec"]["containers"][0]
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert GATE["name"] == JOB["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"]


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (1, 1), (2, 0), (3, 0)])
def test_only_a_failure_keeps_the_pod_from_beginning(tmp_path: Path, code: int, ends: int) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit 0\nexit {code}\n')
    python.chmod(0o755)
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run(GATE["command"], env=environ, check=False).returncode == ends
    python.write_text("#!/bin/sh\nexit 1\n")  # an image without it
    assert subprocess.run(GATE["command"], env=environ, check=False).returncode == 0


def test_its_command_takes_the_options_it_is_given() -> None:
    options = set(re.findall(r"--[a-z-]+", GATE["command"][-1]))
    assert options
    assert options <= set(re.findall(r"--[a-z-]+", CliRunner().invoke(group, ["--help"]).output))


def test_the_sample_of_the_prolog_shows_its_defaults() -> None:
    script = (DEPLOY / "slurm" / "prolog.sh").read_text()
    sample = (DEPLOY / "slurm" / "prolog.conf").read_text()
    shown = dict(re.findall(r"^([A-Z_]+)=(\S.*?)(?: +#.*)?$", sample, re.MULTILINE))
    assert shown == dict(re.findall(r"^([A-Z_]+)=(\S.*?)(?: +#.*)?$", script, re.MULTILINE))


def test_the_prolog_asks_slurm_for_nothing() -> None:
    words = [line for line in (DEPLOY / "slurm" / "prolog.sh").read_text().splitlines() if not line.startswith("#")]
    assert not re.search(r"scontrol|squeue|sinfo|sacct", "\n".join(words))
    assert shutil.which("sh")


@pytest.mark.parametrize(
    ("code", "document", "ends", "says"),
    [
        (0, '{"verdict": "pass", "reason": ""}', 0, ""),
        (
            1,
            '{"verdict": "fail", "reason": "gpu_state on GPU 1: lost"}',
            1,
            "refused, its preflight failed: gpu_state on",
        ),
        (1, '{"verdict": "fail", "reason": "90 \\u00b0C, \\ud800"}', 1, "refused, its preflight failed: 90 "),
        (1, "", 0, "begins untested, the preflight ended with 1: complaint"),
        (1, '{"verdict": "fail", "rea', 0, "begins untested, the preflight ended with 1: complaint"),
        (1, '{"verdict": "pass", "reason": ""}', 0, "begins untested, the preflight ended with 1: complaint"),
        (
            2,
            '{"verdict": "misconfigured", "reason": "GPU 0 is busy"}',
            0,
            "something is to be put right: GPU 0 is busy",
        ),
        (3, "", 0, "begins without a verdict: complaint"),
        (143, "", 0, "begins untested, the preflight ended with 143: complaint"),
    ],
)
def test_the_prolog_refuses_only_what_a_whole_document_calls_bad(
    tmp_path: Path, code: int, document: str, ends: int, says: str
) -> None:
    (tmp_path / "document").write_text(document)
    programs = {
        "healthctl": "echo 'OK - n1 is healthy | age=0.1s'",
        "python": f'[ "$1" = -c ] && exec {sys.executable} "$@"\n'
        f"pwd >{tmp_path}/place; cat {tmp_path}/document; echo complaint >&2; exit {code}",
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "conf").write_text(f"BIN={tmp_path}\nLOG={tmp_path}/log\n")
    environ = os.environ | {"GPU_HEALTHD_PROLOG_CONF": str(tmp_path / "conf")}
    prolog = ["sh", str(DEPLOY / "slurm" / "prolog.sh")]
    assert subprocess.run(prolog, env=environ, cwd=tmp_path, check=False).returncode == ends
    log = tmp_path / "log"
    assert says in log.read_text() if says else not log.exists()
    assert (tmp_path / "place").read_text() == "/\n"  # not where a user could leave a module


UNFIT = "echo 'CRITICAL - n1 is unhealthy: Xid 79 | age=0.1s'; exit 2"


@pytest.mark.parametrize(
    ("healthctl", "ends", "says"),
    [
        (UNFIT, 1, "refused, healthd calls it unfit: n1 is unhealthy: Xid 79\n"),
        (f"echo 'a warning of Python' >&2; {UNFIT}", 1, "refused, healthd calls it unfit: n1 is unhealthy: Xid 79\n"),
        ("echo 'WARNING - n1 is degraded'; exit 1", 0, ""),
        ("echo 'UNKNOWN - no healthd answers'; exit 3", 0, "healthd says nothing of it: no healthd answers\n"),
        (None, 0, "healthd could not be asked, healthctl ended with 127"),
        ("echo 'ModuleNotFoundError: click' >&2; exit 1", 0, "ended with 1: ModuleNotFoundError: click\n"),
        ("echo 'Error: No such option' >&2; exit 2", 0, "ended with 2: Error: No such option\n"),
        ("exit 124", 0, "healthctl ended with 124"),
    ],
)
def test_the_prolog_refuses_only_what_healthd_itself_calls_unfit(
    tmp_path: Path, healthctl: str | None, ends: int, says: str
) -> None:
    if healthctl is not None:
        (tmp_path / "healthctl").write_text(f"#!/bin/sh\n{healthctl}\n")
        (tmp_path / "healthctl").chmod(0o755)
    (tmp_path / "conf").write_text(f'BIN={tmp_path}\nLOG={tmp_path}/log\nPREFLIGHT=""\n')
    environ = os.environ | {"GPU_HEALTHD_PROLOG_CONF": str(tmp_path / "conf")}
    assert subprocess.run(["sh", str(DEPLOY / "slurm" / "prolog.sh")], env=environ, check=False).returncode == ends
    log = tmp_path / "log"
    assert says in log.read_text() if says else not log.exists()


def test_a_failure_that_healthd_was_not_told_of_is_in_the_log(tmp_path: Path) -> None:
    programs = {
        "healthctl": "echo 'UNKNOWN - no healthd answers'; exit 3",
        "python": f'[ "$1" = -c ] && exec {sys.executable} "$@"\n'
        'echo \'{"verdict": "fail", "reason": "wrong"}\'; echo "preflight: no healthd to tell at /s: gone" >&2; exit 1',
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "conf").write_text(f"BIN={tmp_path}\nLOG={tmp_path}/log\n")
    environ = os.environ | {"GPU_HEALTHD_PROLOG_CONF": str(tmp_path / "conf")}
    assert subprocess.run(["sh", str(DEPLOY / "slurm" / "prolog.sh")], env=environ, check=False).returncode == 1
    assert (
        "healthd was not told of the fail: preflight: no healthd to tell at /s: gone" in (tmp_path / "log").read_text()
    )
