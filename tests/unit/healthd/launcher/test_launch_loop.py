"""The launcher on real child processes: small shell commands stand for the ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.stderr_writer import drain_stderr
from tests.unit.healthd.launcher.launcher_process import (
    DEADLINE_S,
    LEAVES,
    QUICK,
    argv,
    attempts,
    gone,
    launch,
    read_events,
    wait_until,
)
from vocabulary.clock import ManualClock


def test_the_condemned_node_is_replaced_by_the_spare(tmp_path: Path) -> None:
    events = tmp_path / "events"
    script = f'[ "$HEALTHD_ATTEMPT" = 2 ] && exit 0; exec {LEAVES} n1'

    done = launch("--spares", "1", "--", "sh", "-c", script, events=events)

    assert done.returncode == 0, done.stderr
    assert attempts(events) == [["n0", "n1"], ["n0", "n2"]]
    ended = [event for event in read_events(events) if event["event"] == "attempt_ended"]
    assert [(event["outcome"], event["condemned"]) for event in ended] == [("ordered", ["n1"]), ("done", [])]
    assert ended[0]["ranks"] == [
        {"rank": 0, "node": "n0", "code": 91, "killed": False},
        {"rank": 1, "node": "n1", "code": 90, "killed": False},
    ]


def test_a_job_that_comes_back_without_its_spare_keeps_its_size() -> None:
    both = launch("--nodes", "2", "--spares", "1", "--", "true", nodes="n0,n1")
    assert both.returncode == 0, both.stderr
    too_few = launch("--nodes", "3", "--spares", "1", "--", "true", nodes="n0,n1")
    assert too_few.returncode == 2
    assert "2 nodes available (n0, n1), too few" in too_few.stderr


def test_ranks_know_their_place(tmp_path: Path) -> None:
    line = 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $HEALTHD_NODE $HEALTHD_ATTEMPT $HEALTHD_JOB" > "$0/$RANK"'

    done = launch("--ranks-per-node", "2", "--", "sh", "-c", line, str(tmp_path), nodes="a,b")

    assert done.returncode == 0, done.stderr
    said = [(tmp_path / str(rank)).read_text().split() for rank in range(4)]
    assert [words[:5] for words in said] == [
        ["0", "0", "4", "a", "1"],
        ["1", "1", "4", "a", "1"],
        ["2", "0", "4", "b", "1"],
        ["3", "1", "4", "b", "1"],
    ]
    assert len({words[5] for words in said}) == 1


def test_a_command_per_node_is_told_how_to_make_its_ranks(tmp_path: Path) -> None:
    line = (
        'echo "$NODE_RANK $NNODES $PET_NODE_RANK $PET_NNODES $PET_NPROC_PER_NODE $HEALTHD_NODE/$RANK" > "$0/$NODE_RANK"'
    )

    done = launch("--per-node", "--ranks-per-node", "4", "--", "sh", "-c", line, str(tmp_path), nodes="a,b")

    assert done.returncode == 0, done.stderr
    assert "attempt 1: 8 ranks on a, b" in done.stderr
    assert [(tmp_path / str(node)).read_text().strip() for node in range(2)] == ["0 2 0 2 4 a/", "1 2 1 2 4 b/"]


def test_without_a_spare_it_asks_to_be_queued_again(tmp_path: Path) -> None:
    events = tmp_path / "events"
    done = launch("--", "sh", "-c", f"exec {LEAVES} n0", events=events)

    assert done.returncode == 75
    assert "3 nodes needed, 2 usable of 3; not n0" in done.stderr
    assert len(attempts(events)) == 1


def test_a_rank_that_stays_is_killed_and_its_node_left_out(tmp_path: Path) -> None:
    events = tmp_path / "events"
    script = '[ "$HEALTHD_ATTEMPT" = 2 ] && exit 0; [ "$RANK" = 1 ] && sleep 300; exec ' + f"{LEAVES} n9 aborted 92"

    done = launch("--spares", "1", "--leave-seconds", "0.3", "--", "sh", "-c", script, events=events)

    assert done.returncode == 0, done.stderr
    assert attempts(events) == [["n0", "n1"], ["n0", "n2"]]
    assert "had to kill what stayed on n1" in done.stderr


def test_a_job_shrinks_when_it_may_and_says_so(tmp_path: Path) -> None:
    events = tmp_path / "events"
    script = '[ "$HEALTHD_ATTEMPT" = 2 ] && exit $((10 - WORLD_SIZE)); exec ' + f"{LEAVES} n0"

    done = launch("--min-nodes", "2", *QUICK, "--", "sh", "-c", script, events=events)

    assert done.returncode == 10 - 2
    assert attempts(events) == [["n0", "n1", "n2"], ["n1", "n2"]]
    assert "2 instead of 3 nodes" in done.stderr


def test_a_job_may_begin_small_and_its_sizes_must_make_sense() -> None:
    small = launch("--nodes", "3", "--min-nodes", "1", *QUICK, "--", "true", nodes="n0,n1")
    assert small.returncode == 0, small.stderr
    refused = launch("--nodes", "1", "--min-nodes", "2", "--", "true")
    assert refused.returncode == 2
    assert "--min-nodes 2 is more than the 1 of --nodes" in refused.stderr


@pytest.mark.parametrize(("command", "code"), [(["false-and-absent"], 127), (["sh", "-c", "exit 93"], 93)])
def test_what_cannot_work_is_not_tried_for_ever(command: list[str], code: int) -> None:
    assert launch("--max-crashes", "1", "--", *command).returncode == code


def test_unfit_nodes_are_never_used_and_wrong_numbers_are_explained(tmp_path: Path) -> None:
    refused = launch("--gate", "require", "--", "true")
    too_many = launch("--nodes", "4", "--", "true")

    assert refused.returncode == 75
    assert "gate: n0 unknown, n1 unknown, n2 unknown" in refused.stderr
    assert too_many.returncode == 2
    assert "3 nodes available (n0, n1, n2), too few" in too_many.stderr


DOCUMENT = """
case $HEALTHD_NODE in
  n0) echo '{"verdict": "fail", "reason": "matmul_repeat: wrong products"}'; exit 1;;
  n1) echo '{"verdict": "inconclusive", "reason": "busy"}'; exit 3;;
  n2) echo '{"verdict": "pass"}';;
  n3) exec sleep 300;;
esac
"""


@pytest.mark.parametrize("gate", ["off", "prefer"])
def test_nodes_that_fail_the_preflight_are_left_out_and_doubtful_ones_come_last(tmp_path: Path, gate: str) -> None:
    events, site = tmp_path / "events", tmp_path / "site.sh"
    site.write_text(DOCUMENT)
    options = ("--preflight-command", f"sh {site}", "--preflight-seconds", "2", "--nodes", "1", "--gate", gate)

    done = launch(*options, "--", "true", nodes="n0,n1,n2,n3", events=events)

    assert done.returncode == 0, done.stderr
    assert (
        "preflight: n0 unfit (matmul_repeat: wrong products), n1 unknown (busy), n2 fit, n3 unknown (the" in done.stderr
    )
    [asked] = [event for event in read_events(events) if event["event"] == "preflight"]
    assert asked["reasons"] == {
        "n0": "matmul_repeat: wrong products",
        "n1": "busy",
        "n3": "the preflight did not end within 2 s",
    }
    assert attempts(events) == [["n2"]]


def test_a_node_is_proven_once(tmp_path: Path) -> None:
    count = f'echo x >> {tmp_path}/$HEALTHD_NODE; echo \'{{"verdict": "pass"}}\''
    site = tmp_path / "site.sh"
    site.write_text(count)
    script = f'[ "$HEALTHD_ATTEMPT" = 2 ] && exit 0; exec {LEAVES} n0'

    done = launch("--spares=1", f"--preflight-command=sh {site}", *QUICK, "--", "sh", "-c", script)

    assert done.returncode == 0, done.stderr
    assert [(tmp_path / node).read_text() for node in ("n0", "n1", "n2")] == ["x\n"] * 3


def test_when_every_node_fails_the_job_is_queued_again() -> None:
    done = launch("--preflight-command", 'sh -c \'echo {\\"verdict\\":\\"fail\\"}; exit 1\'', *QUICK, "--", "true")

    assert done.returncode == 75, done.stderr


def test_the_products_own_preflight_reads_well() -> None:
    faulty = "-m preflight run --level gate -o json --only matmul_repeat --inject matmul_repeat:nan"
    done = launch("--preflight-command", f"{sys.executable} {faulty}", *QUICK, "--", "true", nodes="n0")

    assert done.returncode == 75, done.stderr
    assert "preflight: n0 unfit (" in done.stderr


def test_ranks_in_sessions_of_their_own_are_killed_with_their_program(tmp_path: Path) -> None:
    stays = 'trap "" TERM; setsid sh -c "echo \\$\\$ > $0/pid; exec sleep 300" & wait; sleep 300'
    script = f'[ "$NODE_RANK" = 1 ] && {{ {stays}; }}; while [ ! -s "$0/pid" ]; do sleep 0.05; done; exit 7'
    options = ("--per-node", "--max-restarts", "0", "--leave-seconds", "0.2", *QUICK)

    done = launch(*options, "--", "sh", "-c", script, str(tmp_path), nodes="a,b")

    assert done.returncode == 7, done.stderr
    wait_until(lambda: gone(int((tmp_path / "pid").read_text())), "a rank is still there")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_the_launcher(tmp_path: Path, number: signal.Signals) -> None:
    script = 'echo $$ > "$0/$RANK.new"; mv "$0/$RANK.new" "$0/$RANK"; exec sleep 300'
    launcher = subprocess.Popen(argv("--", "sh", "-c", script, str(tmp_path)), stderr=subprocess.PIPE)
    ranks = [tmp_path / str(rank) for rank in range(3)]
    wait_until(lambda: all(path.exists() for path in ranks), "the ranks did not start")
    pids = [int(path.read_text()) for path in ranks]

    os.kill(launcher.pid, number)
    launcher.communicate(timeout=DEADLINE_S)

    wait_until(lambda: all(gone(pid) for pid in pids), "a rank is still there")
    assert launcher.returncode == (128 + number if number == signal.SIGTERM else -number)


SAVES = """
trap 'exit 91' TERM
echo ready > "$0/$RANK"
while :; do sleep 0.05; done
"""


def saving_job(tmp_path: Path, *options: str, **environ: str) -> subprocess.Popen[str]:
    """A launcher whose ranks leave with 91 when asked, once they are ready."""
    command = argv(*options, *QUICK, "--", "sh", "-c", SAVES, str(tmp_path), nodes="n0,n1")
    launcher = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environ})
    wait_until(lambda: all((tmp_path / str(rank)).exists() for rank in range(2)), "the ranks did not start")
    return launcher


def test_a_notice_file_makes_the_ranks_leave_and_the_job_queue_again(tmp_path: Path) -> None:
    notice = tmp_path / "notice"
    notice.write_text("of an earlier end")
    launcher = saving_job(tmp_path, "--notice-file", str(notice))
    assert launcher.poll() is None

    notice.write_text("of now")

    said = launcher.communicate(timeout=DEADLINE_S)[1]
    assert launcher.returncode == 75, said
    assert f"stopped by the notice in {notice}" in said
    assert "ordered after" in said


def test_a_schedulers_warning_signal_makes_the_ranks_leave(tmp_path: Path) -> None:
    launcher = saving_job(tmp_path, HEALTHD_TERMINATION_SIGNALS="USR2")

    os.kill(launcher.pid, signal.SIGUSR2)

    said = launcher.communicate(timeout=DEADLINE_S)[1]
    assert launcher.returncode == 128 + signal.SIGUSR2, said
    assert "ordered after" in said


def test_attempts_are_counted_on_after_a_requeue_and_garbage_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_text('{"event": "attempt_started", "job": "j", "attempt": 4}\nnot json\n{"event": 3}\n[1]\n')
    journal = LaunchJournal(path, "j", ManualClock())

    assert journal.last_attempt() == 4
    assert LaunchJournal(path, "other", ManualClock()).last_attempt() == 0
    assert LaunchJournal(None, "j", ManualClock()).last_attempt() == 0


def test_a_journal_that_cannot_be_written_stops_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    LaunchJournal(tmp_path / "absent" / "events", "j", ManualClock()).write("gate", "gate: n1 fit")

    assert drain_stderr()
    assert "this event is not recorded" in capfd.readouterr().err
