"""Attempts that end badly: which count, how often they are made again, and after which pause."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.unit.healthd.launcher.launcher_process import DEADLINE_S, LEAVES, QUICK, argv, attempts, launch, read_events


@pytest.mark.parametrize("code", [90, 91, 92])
def test_a_code_that_no_order_explains_is_a_crash_and_condemns_no_node(tmp_path: Path, code: int) -> None:
    events = tmp_path / "events"
    options = ("--nodes", "1", "--min-nodes", "1", "--max-crashes", "3")

    done = launch(*options, *QUICK, "--", "sh", "-c", f"exit {code}", events=events)

    assert done.returncode == 1
    assert attempts(events) == [["n0"]] * 3
    assert f"3 crashes in a row without progress: rank 0 on n0 exited with {code}, but obeyed no order" in done.stderr
    assert [event["seconds"] for event in read_events(events) if event["event"] == "waiting"] == [0.01, 0.02]


def test_a_save_that_fails_each_time_is_not_tried_for_ever_but_its_order_is_obeyed(tmp_path: Path) -> None:
    events = tmp_path / "events"

    done = launch("--max-crashes", "2", *QUICK, "--", "sh", "-c", f"exec {LEAVES} n9 failed 92", events=events)

    assert done.returncode == 1
    assert len(attempts(events)) == 2


def test_crashes_are_counted_on_after_a_requeue(tmp_path: Path) -> None:
    """Those that another launcher has seen before the job came back to the queue."""
    events = tmp_path / "events"
    crash = json.dumps({"event": "attempt_ended", "job": "j", "outcome": "crashed", "step": -1, "attempt": 1})
    events.write_text(f"{crash}\n{crash}\n")
    command = argv("--max-crashes", "3", *QUICK, "--", "sh", "-c", "kill -SEGV $$", nodes="n0", events=events)

    done = subprocess.run(
        command, env={**os.environ, "HEALTHD_JOB": "j"}, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )

    assert done.returncode == 128 + signal.SIGSEGV, done.stderr
    assert "3 crashes in a row without progress" in done.stderr
    assert len(attempts(events)) == 1


def test_a_rank_that_is_not_done_long_after_the_first_is_killed_and_says_so(tmp_path: Path) -> None:
    events = tmp_path / "events"
    script = '[ "$HEALTHD_ATTEMPT" = 2 ] && exit 0; [ "$RANK" = 0 ] && exit 0; exec sleep 300'

    done = launch("--done-seconds", "0.3", *QUICK, "--", "sh", "-c", script, nodes="n0,n1", events=events)

    assert done.returncode == 0, done.stderr
    assert attempts(events) == [["n0", "n1"]] * 2
    ended = next(event for event in read_events(events) if event["event"] == "attempt_ended")
    assert ended["outcome"] == "crashed"
    assert ended["ranks"] == [
        {"rank": 0, "node": "n0", "code": 0, "killed": False},
        {"rank": 1, "node": "n1", "code": -9, "killed": True},
    ]
    assert "killing 1 rank that stayed 0.3 s after the first was done" in done.stderr
    assert "rank 1 on n1 stayed after its peers and was killed" in done.stderr


def test_a_crash_loop_ends_with_the_users_own_code(tmp_path: Path) -> None:
    events = tmp_path / "events"
    script = '[ "$RANK" = 1 ] && kill -SEGV $$; exit 7'
    done = launch("--max-crashes", "2", *QUICK, "--", "sh", "-c", script, events=events)

    assert done.returncode == 7
    assert len(attempts(events)) == 2
    assert "2 crashes in a row without progress" in done.stderr
    assert [event["seconds"] for event in read_events(events) if event["event"] == "waiting"] == [0.01]


def test_what_fails_alike_on_all_ranks_at_once_is_the_users_error(tmp_path: Path) -> None:
    events = tmp_path / "events"
    done = launch("--", "sh", "-c", "exit 7", events=events)

    assert done.returncode == 7
    assert len(attempts(events)) == 1
    assert "3 of 3 ranks exited with 7 soon after their start, no node has a fault" in done.stderr
    assert [event["outcome"] for event in read_events(events) if event["event"] == "stopped"] == ["user_error"]


def test_a_command_that_has_trained_before_is_not_called_wrong_for_one_early_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tmp_path / "events"
    monkeypatch.setenv("HEALTHD_JOB", "long")
    before = {"event": "attempt_ended", "job": "long", "outcome": "ordered", "step": 5000, "advanced": True}
    events.write_text(json.dumps(before) + "\n")

    done = launch(*QUICK, "--", "sh", "-c", '[ "$HEALTHD_ATTEMPT" = 2 ] && exit 93; exit 7', events=events)

    assert done.returncode == 93
    assert len(attempts(events)) == 2


def test_user_errors_may_be_tried_again(tmp_path: Path) -> None:
    events = tmp_path / "events"
    done = launch("--user-error-seconds", "0", "--max-crashes", "2", *QUICK, "--", "sh", "-c", "exit 7", events=events)

    assert done.returncode == 7
    assert len(attempts(events)) == 2


def test_crashes_after_progress_do_not_count(tmp_path: Path) -> None:
    events, progress = tmp_path / "events", tmp_path / "progress"
    script = '[ "$HEALTHD_ATTEMPT" = 4 ] && exit 93; echo "$HEALTHD_ATTEMPT" >> "$0"; exit 7'
    options = ("--max-crashes", "1", "--progress-file", str(progress), *QUICK)

    done = launch(*options, "--", "sh", "-c", script, str(progress), events=events)

    assert done.returncode == 93
    assert len(attempts(events)) == 4
