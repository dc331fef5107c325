"""A pod is a node: its place from Kubernetes' variables, its end as the manifests read it. No cluster is involved."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from healthd.launcher.backends.kubernetes_pod import PodBackend
from healthd.launcher.decisions.relaunch_policy import REQUEUE_EXIT
from healthd.launcher.scheduler_backend import BackendError
from healthd.trainer.exit_codes import ExitCode
from tests.unit.healthd.launcher.launcher_process import LEAVES

DEPLOY = Path(__file__).parents[4] / "deploy" / "kubernetes"
POD = {
    "JOB_COMPLETION_INDEX": "1",
    "NNODES": "3",
    "MASTER_ADDR": "train-0.train",
    "MASTER_PORT": "29400",
    "HEALTHD_JOB": "uid",
    "HEALTHD_NODE": "gpu-17",
}
DEADLINE_S = 90.0


def documents(name: str) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / name).read_text())}


def job_specs() -> dict[str, dict[str, Any]]:
    """The Job that each manifest makes, by the manifest's name."""
    job = documents("training-job.yaml")["Job"]["spec"]
    jobs = documents("training-jobset.yaml")["JobSet"]["spec"]["replicatedJobs"]
    return {"training-job.yaml": job, "training-jobset.yaml": jobs[0]["template"]["spec"]}


JOBS = job_specs()


def codes(spec: Mapping[str, Any], action: str) -> set[int]:
    rules = spec["podFailurePolicy"]["rules"]
    return {
        code for rule in rules if rule["action"] == action for code in rule.get("onExitCodes", {}).get("values", ())
    }


def test_the_job_replaces_pods_that_left_by_order_and_fails_on_never_again() -> None:
    job = JOBS["training-job.yaml"]

    assert codes(job, "FailJob") == {ExitCode.NEVER_AGAIN}
    assert codes(job, "Ignore") == {ExitCode.CONDEMNED, ExitCode.RELAUNCH, ExitCode.ABORTED, REQUEUE_EXIT}
    assert {"type": "DisruptionTarget", "status": "True"} in job["podFailurePolicy"]["rules"][-1]["onPodConditions"]


def test_the_job_set_starts_all_anew_and_fails_on_never_again() -> None:
    job, spec = JOBS["training-jobset.yaml"], documents("training-jobset.yaml")["JobSet"]["spec"]

    assert codes(job, "FailJob") == {ExitCode.NEVER_AGAIN}
    assert codes(job, "Ignore") == set()
    assert job["backoffLimit"] == 0
    assert spec["failurePolicy"]["rules"][0]["onJobFailureReasons"] == ["PodFailurePolicy"]
    assert spec["replicatedJobs"][0]["replicas"] == 1


@pytest.mark.parametrize("name", JOBS)
def test_pods_are_numbered_nodes_that_are_never_restarted_in_place(name: str) -> None:
    job = JOBS[name]
    pod, container = job["template"]["spec"], job["template"]["spec"]["containers"][0]
    environ = {each["name"]: each.get("value", "told") for each in container["env"]}

    assert job["completionMode"] == "Indexed"
    assert pod["restartPolicy"] == "Never"
    assert job["completions"] == job["parallelism"] == int(environ["NNODES"])
    assert all(rule["onExitCodes"]["containerName"] == container["name"] for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule)  # fmt: skip
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert "--backend=kubernetes" in container["command"]
    given = {key: "0" if value == "told" and "BEFORE" in key else value for key, value in environ.items()}
    assert PodBackend(given | {"JOB_COMPLETION_INDEX": "0"}).nodes() == ("told",)


def test_the_pods_meet_at_the_first_by_its_name() -> None:
    manifest = documents("training-job.yaml")
    job, service = manifest["Job"], manifest["Service"]
    pod = job["spec"]["template"]["spec"]
    address = next(each["value"] for each in pod["containers"][0]["env"] if each["name"] == "MASTER_ADDR")

    assert address == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"JOB_COMPLETION_INDEX": ""}, "JOB_COMPLETION_INDEX is not set"),
        ({"JOB_COMPLETION_INDEX": "3"}, "JOB_COMPLETION_INDEX=3 does not fit NNODES=3"),
        ({"NNODES": "many"}, "NNODES='many' is not a whole number"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        ({"HEALTHD_JOB": ""}, "HEALTHD_JOB is not set"),
    ],
)
def test_a_pod_that_does_not_know_its_place_says_what_is_missing(changes: dict[str, str], problem: str) -> None:
    with pytest.raises(BackendError, match=problem):
        PodBackend(POD | changes)


@given(st.dictionaries(st.sampled_from([*POD, "HEALTHD_ATTEMPTS_BEFORE"]), st.text("0123456789-x", max_size=3)))
def test_no_environment_gives_a_pod_a_place_outside_its_job(changes: dict[str, str]) -> None:
    try:
        backend = PodBackend(POD | changes)
    except BackendError:
        return
    assert 0 <= backend._index < backend._pods


def launch(*options: str, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "healthctl.main", "launch", "--backend=kubernetes", "--gate=off", *options]
    known = {**os.environ, **POD, **environ}
    return subprocess.run(
        [*argv, "--", "sh", "-c", script], env=known, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )


def test_the_ranks_of_a_pod_are_numbered_after_those_of_the_pods_before_it() -> None:
    say = 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $HEALTHD_NODE $HEALTHD_JOB $HEALTHD_ATTEMPT"'
    done = launch("--ranks-per-node=2", script=say, HEALTHD_ATTEMPTS_BEFORE="4")

    place = "6 train-0.train 29400 gpu-17 uid 5"
    assert sorted(done.stdout.splitlines()) == [f"2 0 {place}", f"3 1 {place}"], done.stderr


def test_a_program_that_makes_its_ranks_is_told_which_pod_it_is() -> None:
    done = launch("--per-node", "--ranks-per-node=8", script='echo "$NODE_RANK $PET_NNODES $PET_NPROC_PER_NODE"')

    assert done.stdout.split() == ["1", "3", "8"], done.stderr


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 0", 0),
        (f"exec {LEAVES} gpu-17", 90),
        (f"exec {LEAVES} gpu-18", 91),
        (f"exec {LEAVES} gpu-18 aborted $((91 + LOCAL_RANK))", 92),
        ("exit 90", 1),  # obeyed no order: the Job must count this pod
        ("exit 92", 1),
        ("[ $LOCAL_RANK = 0 ] && exit 93; exit 1", 93),
        ("exit 7", 7),
    ],
)
def test_a_pod_ends_once_with_the_code_its_job_reads(tmp_path: Path, script: str, code: int) -> None:
    told = {"HEALTHD_BEACON_DIR": str(tmp_path / "beacons"), "PYTHONPATH": str(DEPLOY.parents[1])}
    done = launch("--ranks-per-node=2", script=script, **told)

    assert done.returncode == code, done.stderr
    assert done.stderr.count("ranks on gpu-17") == 1
