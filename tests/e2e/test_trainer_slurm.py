"""`healthctl launch` inside a real Slurm allocation. Shell commands stand for the ranks: Slurm is the subject."""

from __future__ import annotations

import signal
import sys
from datetime import datetime
from pathlib import Path

import pytest
from slurm_batch import ROOT, Batch, Submit

from healthctl.demo.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slurm
LEAVES = f"{sys.executable} {ROOT}/tests/unit/healthd/launcher/leaving_rank.py"  # a rank that obeys an order


def test_the_condemned_node_is_replaced_within_the_allocation(submit: Submit) -> None:
    condemns = f'[ "$RANK" = 2 ] && exec {LEAVES} $HEALTHD_NODE; exec {LEAVES} another'
    script = f'[ "$HEALTHD_ATTEMPT" = 2 ] && exit 0; {condemns}'
    job = submit(3, "--spares 1 --ranks-per-node 2", script)

    assert job.code() == 0, job.log()

    first, second = job.all("attempt_started")
    ended = job.all("attempt_ended")[0]
    condemned = first["nodes"][1]
    assert ended["condemned"] == [condemned]
    assert [(rank["rank"], rank["node"], rank["code"]) for rank in ended["ranks"]] == [
        (0, first["nodes"][0], 91),
        (1, first["nodes"][0], 91),
        (2, condemned, 90),
        (3, condemned, 91),
    ]
    assert condemned not in second["nodes"]
    assert job.all("gate")[0]["verdicts"] == dict.fromkeys([*first["nodes"], second["nodes"][1]], "unknown")


def test_a_frozen_rank_is_killed_with_its_step_and_its_node_left_out(submit: Submit) -> None:
    script = (
        '[ "$HEALTHD_ATTEMPT" = 2 ] && exit 0; [ "$RANK" = 1 ] && kill -STOP $$; exec ' + f"{LEAVES} another aborted 92"
    )
    job = submit(3, "--spares 1 --leave-seconds 1", script)

    assert job.code() == 0, job.log()

    first, second = job.all("attempt_started")
    assert job.all("attempt_ended")[0]["condemned"] == [first["nodes"][1]]
    assert first["nodes"][1] not in second["nodes"]


def test_without_a_spare_the_job_is_queued_again(submit: Submit) -> None:
    condemns = f'[ "$RANK" = 0 ] && exec {LEAVES} $HEALTHD_NODE; exec {LEAVES} another'
    job = submit(2, "", f'[ "$HEALTHD_ATTEMPT" = 2 ] && exit 0; {condemns}')

    job.until(lambda: len(job.all("attempt_ended")) == 2, "a second attempt after the requeue")

    assert len(job.all("requeued")) == 1
    assert [event["outcome"] for event in job.all("attempt_ended")] == ["ordered", "done"]


def _refuses(tmp_path: Path, first: str) -> str:
    """A site's test that fails on the node that `first` names; where there is no such file, on the node that asks first."""
    site = tmp_path / "site.sh"
    site.write_text(
        f"(set -C; echo $HEALTHD_NODE > {tmp_path}/{first}) 2> {tmp_path}/taken\n"
        f'[ "$(cat {tmp_path}/{first})" = $HEALTHD_NODE ] && echo \'{{"verdict": "fail"}}\' && exit 1\n'
        'echo \'{"verdict": "pass"}\'\n'
    )
    return f"--gate off --preflight-command 'sh {site}'"


def _facts(cluster: SlurmCluster, job: Batch) -> dict[str, str]:
    words = cluster.command("scontrol", "-o", "show", "job", job.id).split()
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def test_a_job_does_not_come_back_to_the_node_that_it_refused(
    submit: Submit, slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    job = submit(1, _refuses(tmp_path, "bad"), "exit 0")

    assert job.code() == 0, job.log()

    bad = (tmp_path / "bad").read_text().strip()
    [requeuing], [requeued], [started] = job.all("requeuing"), job.all("requeued"), job.all("attempt_started")
    assert requeuing["without"] == requeued["without"] == [bad]
    assert f"requesting Slurm to requeue the job, from now on without {bad}" in job.log()
    assert f"the job is queued again, from now on without {bad}" in job.log()
    assert started["nodes"] != [bad]
    assert _facts(slurm_cluster, job)["ExcNodeList"] == bad


def test_a_job_that_needs_every_node_waits_longer_each_time_and_is_never_held(
    submit: Submit, slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    """Slurm holds a job for ever that excludes a node which it needs."""
    job = submit(len(slurm_cluster.shape.nodes), _refuses(tmp_path, "bad"), "exit 0")
    job.until(lambda: len(job.all("requeued")) == 2, "to be queued again twice")
    job.until(lambda: _facts(slurm_cluster, job)["Reason"] == "BeginTime", "Slurm to have it back")

    first, second = job.all("requeued")
    facts = _facts(slurm_cluster, job)

    assert (first["without"], first["wait_seconds"], second["wait_seconds"]) == ([], 0, 60), job.log()
    assert "only 4 nodes of the required 5 remain" in second["text"]
    assert (facts["ExcNodeList"], facts["JobState"]) == ("(null)", "PENDING")
    assert facts["Priority"] != "0", "held"
    slurms_own_s = 15  # here; what we asked for is counted from a moment before we wrote it down
    assert datetime.fromisoformat(facts["EligibleTime"]).timestamp() > second["at"] + slurms_own_s


def test_crashes_are_counted_on_after_a_requeue(submit: Submit, tmp_path: Path) -> None:
    notice = tmp_path / "notice"
    noticed = f"trap 'kill -SEGV $$' TERM; touch {notice}; while :; do sleep 0.1; done"
    script = f'[ "$HEALTHD_ATTEMPT" = 2 ] && {{ {noticed}; }}; kill -SEGV $$'
    job = submit(1, f"--max-crashes 3 --backoff-seconds 0.01 --notice-file {notice} --gate off", script)

    job.until(lambda: job.all("stopped"), "the launcher to give up")

    assert [event["outcome"] for event in job.all("attempt_ended")] == ["crashed"] * 3
    assert "3 crashes in a row without progress" in job.all("stopped")[0]["text"]
    assert job.all("stopped")[0]["code"] == 128 + signal.SIGSEGV


def test_a_rank_that_is_not_done_long_after_the_first_is_ended(submit: Submit) -> None:
    script = '[ "$HEALTHD_ATTEMPT" = 2 ] && exit 0; [ "$RANK" = 0 ] && exit 0; exec sleep 300'
    job = submit(2, "--done-seconds 1 --leave-seconds 0.5 --stop-seconds 1 --backoff-seconds 0.01", script)

    assert job.code() == 0, job.log()

    first, second = job.all("attempt_ended")
    assert (first["outcome"], second["outcome"]) == ("crashed", "done"), job.log()
    assert first["ranks"][0]["code"] == 0
    assert first["ranks"][1]["code"] < 0


def test_a_spare_that_died_is_not_chosen_and_the_next_one_is(
    submit: Submit, slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    ready = f"touch {tmp_path}/ready.$RANK; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    condemns = f'[ "$RANK" = 1 ] && exec {LEAVES} $HEALTHD_NODE; exec {LEAVES} another'
    job = submit(4, "--spares 2", f'[ "$HEALTHD_ATTEMPT" = 2 ] && exit 0; {ready}; {condemns}')
    job.until(lambda: len(list(tmp_path.glob("ready.*"))) == 2, "the first attempt")
    dead, lives = sorted({*job.all("gate")[0]["verdicts"]} - {*job.all("attempt_started")[0]["nodes"]})

    slurm_cluster.command("scontrol", "update", f"nodename={dead}", "state=down", "reason=a test")
    try:
        (tmp_path / "go").touch()
        assert job.code() == 0, job.log()
    finally:
        slurm_cluster.command("scontrol", "update", f"nodename={dead}", "state=resume", check=False)

    first, second = job.all("attempt_started")
    assert second["nodes"] == [first["nodes"][0], lives]


def test_ranks_are_placed_by_slurm_and_share_an_address(submit: Submit, tmp_path: Path) -> None:
    said = 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $HEALTHD_NODE $MASTER_ADDR $MASTER_PORT $HEALTHD_JOB" >> '
    job = submit(2, "--ranks-per-node 2", said + str(tmp_path / "said.$SLURM_PROCID"))

    assert job.code() == 0, job.log()

    [started] = job.all("attempt_started")
    words = [(tmp_path / f"said.{rank}").read_text().split() for rank in range(4)]
    first, second = started["nodes"]
    assert [each[:4] for each in words] == [
        ["0", "0", "4", first],
        ["1", "1", "4", first],
        ["2", "0", "4", second],
        ["3", "1", "4", second],
    ]
    assert {tuple(each[4:]) for each in words} == {("127.0.0.1", words[0][5], job.id)}


def test_one_srun_proves_all_nodes_and_the_one_that_fails_is_left_out(submit: Submit, tmp_path: Path) -> None:
    site = tmp_path / "site.sh"
    site.write_text(
        f"echo $SLURM_STEP_ID >> {tmp_path}/step.$HEALTHD_NODE\n"
        '[ $SLURM_PROCID = 1 ] && echo \'{"verdict": "fail", "reason": "wrong products"}\' && exit 1\n'
        "[ $SLURM_PROCID = 2 ] && exec sleep 300\n"
        'echo \'{"verdict": "pass"}\'\n'
    )
    options = f"--nodes 1 --preflight-command 'sh {site}' --preflight-seconds 3 --gate off"

    job = submit(3, options, "exit 0")

    assert job.code() == 0, job.log()
    [asked], [started] = job.all("preflight"), job.all("attempt_started")
    assert sorted(asked["verdicts"].values()) == ["fit", "unfit", "unknown"]
    [failed] = [node for node, word in asked["verdicts"].items() if word == "unfit"]
    assert asked["reasons"][failed] == "wrong products"
    assert [asked["verdicts"][node] for node in started["nodes"]] == ["fit"]
    assert len({path.read_text() for path in tmp_path.glob("step.*")}) == 1


def test_the_users_own_error_stops_the_job_at_once(submit: Submit) -> None:
    job = submit(2, "--ranks-per-node 2", "exit 3")

    assert job.code() == 3, job.log()
    assert len(job.all("attempt_started")) == 1
    assert job.all("stopped")[0]["outcome"] == "user_error"
    assert not job.all("requeued")


def test_the_warning_that_slurm_gives_the_batch_script_reaches_the_ranks(
    submit: Submit, slurm_cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEALTHD_TERMINATION_SIGNALS", "USR2")  # sbatch hands it on
    ready = f"{tmp_path}/ready.$SLURM_PROCID"
    job = submit(2, "", f"trap 'exit 91' TERM; touch {ready}; while :; do sleep 0.1; done", exec_launcher=True)
    job.until(lambda: len(list(tmp_path.glob("ready.*"))) == 2, "the ranks to start")

    slurm_cluster.command("scancel", "--batch", "--signal=USR2", job.id)

    job.until(lambda: job.all("stopped"), "the launcher to stop")
    assert [rank["code"] for rank in job.all("attempt_ended")[0]["ranks"]] == [91, 91]
    assert job.all("stopped")[0]["code"] == 128 + signal.SIGUSR2


def test_a_cancelled_job_leaves_no_rank_behind(submit: Submit, slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    job = submit(2, "", f"echo $$ > {tmp_path}/pid.$SLURM_PROCID.new; mv {tmp_path}/pid.$SLURM_PROCID.new {tmp_path}/pid.$SLURM_PROCID; exec sleep 300")  # fmt: skip
    pids = [tmp_path / f"pid.{rank}" for rank in range(2)]
    job.until(lambda: all(path.exists() for path in pids), "the ranks to start")

    slurm_cluster.command("scancel", "--full", job.id)

    job.until(lambda: not any(Path(f"/proc/{path.read_text().strip()}").exists() for path in pids), "the ranks to end")
