"""Where a process stands in its group, by each launcher's own variables."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from preflight.group.launchers.launcher_detection import detect_placement
from preflight.group.launchers.rank_placement import LauncherError

SLURM = {
    "SLURM_PROCID": "2",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_ID": "1",
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_NODELIST": "gpu[08-10],fat1",
    "SLURMD_NODENAME": "gpu10",
    "SLURM_TOPOLOGY_ADDR": "spine.leaf2.gpu10",
    "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node",
}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}
POD = {"JOB_COMPLETION_INDEX": "0", "NNODES": "3", "MASTER_ADDR": "gate-0.gate", "HEALTHD_NODE": "k8s-7"}


def test_a_slurm_task_finds_its_place() -> None:
    place = detect_placement(SLURM, "host")
    assert (place.launcher, place.rank, place.world, place.node) == ("slurm", 2, 4, "gpu10")
    assert (place.address, place.leaf) == ("gpu08", "leaf2")
    assert place.listed == ("gpu08", "gpu09", "gpu10", "fat1")
    assert place.name_of(3) == "fat1"
    assert {detect_placement(SLURM | {"SLURM_PROCID": str(n)}, "host").port for n in range(4)} == {place.port}
    assert detect_placement(SLURM | {"SLURM_STEP_ID": "2"}, "host").port != place.port


def test_a_node_list_may_have_several_brackets() -> None:
    assert detect_placement(SLURM | {"SLURM_STEP_NODELIST": "r[1-2]n[1-2]"}, "r2n1").name_of(1) == "r1n2"


def test_the_site_may_say_where_rank_0_is_found() -> None:
    place = detect_placement(
        SLURM | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4000", "HEALTHD_LEAF": "rack9"}, "host"
    )
    assert (place.address, place.port, place.leaf) == ("10.0.0.1", 4000, "rack9")


def test_torchrun_counts_within_a_slurm_step() -> None:
    place = detect_placement(SLURM | TORCHRUN, "host")
    assert (place.launcher, place.rank, place.world, place.port) == ("torchrun", 1, 2, 29500)
    assert place.name_of(0) == "rank0"


@pytest.mark.parametrize(("said", "there"), [("True", True), ("False", False), (None, False)])
def test_the_store_of_torchruns_agent_is_used(said: str | None, there: bool) -> None:  # noqa: FBT001 - the answer
    extra = {} if said is None else {"TORCHELASTIC_USE_AGENT_STORE": said}
    assert detect_placement(TORCHRUN | extra, "host").store_is_there is there


def test_a_pod_finds_its_place() -> None:
    place = detect_placement(POD, "gate-0")
    assert (place.launcher, place.rank, place.world, place.node, place.port) == ("kubernetes", 0, 3, "k8s-7", 29400)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({}, "no launcher"),
        (SLURM | {"SLURM_NTASKS": "8"}, "8 tasks on 4 nodes"),
        (SLURM | {"SLURM_STEP_NODELIST": "n[1-"}, "4 tasks on 2 nodes"),
        (SLURM | {"SLURM_PROCID": "x"}, "SLURM_PROCID='x'"),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "8"}, "--nproc-per-node=1"),
        (TORCHRUN | {"RANK": "2"}, "rank 2 does not fit a group of 2"),
        (TORCHRUN | {"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        (TORCHRUN | {"MASTER_PORT": "70000"}, "from 0 to 65535"),
        ({key: value for key, value in POD.items() if key != "NNODES"}, "NNODES is not set"),
        (POD | {"JOB_COMPLETION_INDEX": "3"}, "rank 3 does not fit"),
    ],
)
def test_what_is_no_group_says_why(environ: Mapping[str, str], says: str) -> None:
    with pytest.raises(LauncherError, match=says):
        detect_placement(environ, "host")


def test_one_start_of_a_job_is_told_from_another() -> None:
    again = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h"}
    torchrun = again | {"TORCHELASTIC_RUN_ID": "job7", "TORCHELASTIC_RESTART_COUNT": "1"}
    assert detect_placement(again, "h").run == ""
    assert detect_placement(torchrun, "h").run == "job7.1"
    pod = {"JOB_COMPLETION_INDEX": "0", "NNODES": "2", "MASTER_ADDR": "h", "HEALTHD_RUN": "uid"}
    assert detect_placement(pod, "h").run == "uid"
