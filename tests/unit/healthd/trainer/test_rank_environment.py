from __future__ import annotations

import socket

import pytest

from healthd.trainer.beacons.rank_environment import read_environment
from healthd.trainer.beacons.rank_placement import RankGpu, RankGroups


def test_torchs_variables_come_before_slurms() -> None:
    found = read_environment(
        {
            "RANK": "3",
            "WORLD_SIZE": "8",
            "LOCAL_RANK": "1",
            "SLURM_PROCID": "0",
            "SLURM_NTASKS": "1",
            "SLURM_JOB_ID": "77",
            "SLURMD_NODENAME": "n2",
            "HEALTHD_ATTEMPT": "4",
            "HEALTHD_BEACON_DIR": "/dev/shm/x/{node}",
        }
    )

    assert found.place[:6] == ("77", 4, 3, 8, 1, "n2")
    assert found.beacon_directory == "/dev/shm/x/n2"


def test_slurm_alone_is_enough() -> None:
    found = read_environment({"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "9"})

    assert found.place[:6] == ("9", 0, 5, 6, 1, socket.gethostname())


def test_nothing_set_is_a_job_of_one() -> None:
    found = read_environment({})

    assert found.place[:6] == ("job", 0, 0, 1, 0, socket.gethostname())
    assert found.beacon_directory == "/dev/shm/gpu-healthd"


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"RANK": "one"}, "RANK='one' is not a whole number"),
        ({"RANK": "-1"}, "RANK='-1'"),
        ({"LOCAL_RANK": "x"}, "LOCAL_RANK='x'"),
        ({"WORLD_SIZE": "9" * 5000}, "is not a whole number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 does not fit WORLD_SIZE=2"),
    ],
)
def test_a_wrong_value_is_named(environ: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        read_environment(environ)


def test_a_rank_is_told_of_its_peers_and_its_gpu() -> None:
    told = {
        "HEALTHD_ROLE": "actor",
        "HEALTHD_PIPELINE_STAGE": "2",
        "HEALTHD_TENSOR_GROUP": "5",
        "HEALTHD_DATA_GROUP": "0",
        "HEALTHD_EXPERT_GROUP": "7",
    }
    assert read_environment(told).place.groups == RankGroups("actor", 2, 5, 0, 7)
    assert read_environment({"ROLE_NAME": "trainer"}).place.groups == RankGroups("trainer")
    assert read_environment({"ROLE_NAME": "default"}).place.groups == RankGroups()


@pytest.mark.parametrize("said", ["-1", "", "x", "1.5", "9" * 5000, "99999999999"])
def test_a_group_or_attempt_that_makes_no_sense_is_not_told(said: str, caplog: pytest.LogCaptureFixture) -> None:
    groups = ("HEALTHD_PIPELINE_STAGE", "HEALTHD_TENSOR_GROUP", "HEALTHD_DATA_GROUP", "HEALTHD_EXPERT_GROUP")
    found = read_environment(dict.fromkeys((*groups, "TORCHELASTIC_RESTART_COUNT"), said))

    assert (found.place.groups, found.place.attempt) == (RankGroups(), 0)
    assert len(caplog.records) == (0 if said in ("", "-1") else 5)
    assert all(len(record.getMessage()) < 200 for record in caplog.records)


def test_an_attempt_that_makes_no_sense_gives_way_to_the_next_name(caplog: pytest.LogCaptureFixture) -> None:
    found = read_environment({"HEALTHD_ATTEMPT": "one", "TORCHELASTIC_RESTART_COUNT": "2"})

    assert found.place.attempt == 2
    assert "HEALTHD_ATTEMPT='one' is not a whole number; ignored" in caplog.text


@pytest.mark.parametrize(
    ("visible", "local_rank", "gpu"),
    [
        ("GPU-a,GPU-b", "1", RankGpu("GPU-b")),
        ("4, 5", "0", RankGpu(number=4)),
        ("6", "3", RankGpu(number=6)),
        ("4,5", "2", RankGpu()),
        ("", "0", RankGpu()),
        ("all", "0", RankGpu()),
        ("9" * 5000, "0", RankGpu()),
    ],
)
def test_the_gpu_is_the_one_that_is_visible(visible: str, local_rank: str, gpu: RankGpu) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": visible, "LOCAL_RANK": local_rank}
    assert read_environment(environ).place.gpu == gpu
