"""Commands that decide, against a real controller: tokens, enrolling a node, the mode, silences, the breaker, lists."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.controller_process import Controller

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    found = Controller(tmp_path_factory.mktemp("c"))
    found.tokens["root"] = found.issue("--admin", "root")
    found.start()
    yield found
    found.end(signal.SIGTERM)


@pytest.fixture
def run(controller: Controller, tmp_path: Path) -> Run:
    """healthctl as a program of its own, with an admin's token."""
    token = tmp_path / "admin"
    token.write_text(controller.tokens["root"])
    env = os.environ | {"HEALTHCTL_SERVER": controller.url, "HEALTHCTL_TOKEN_FILE": str(token)}

    def invoke(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "healthctl", *arguments]
        return subprocess.run(
            argv, env=env, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL
        )

    return invoke


def test_a_node_enrolls_with_a_join_secret_once_and_for_good(run: Run, tmp_path: Path) -> None:
    join, own = tmp_path / "join", tmp_path / "own" / "token"
    assert run("token", "join", "gpu-*", "--out", str(join)).returncode == 0
    for word in ("is new", "already exists"):
        done = run("enroll", "--join-file", str(join), "--out", str(own), "--node", "gpu-1")
        assert (done.returncode, word in done.stdout) == (0, True), done.stderr
        assert f"token_file: {own}" in done.stdout
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    refused = run("enroll", "--join-file", str(join), "--out", str(tmp_path / "other"), "--node", "gpu-2")
    assert (refused.returncode, "used up" in refused.stderr) == (3, True), "one use was all"
    assert not (tmp_path / "other").exists()
    assert run("token", "revoke", "--node", "gpu-1").returncode == 0
    assert run("enroll", "--join-file", str(join), "--out", str(own), "--node", "gpu-1").returncode == 3


def test_the_mode_is_set_shown_and_given_back(run: Run) -> None:
    lowered = run("mode", "observe", "the network is worked on", "-o", "json")
    assert lowered.returncode == 0, lowered.stderr
    found = json.loads(lowered.stdout)
    assert found["mode"] == "observe"
    assert "root" in found["mode_by"]
    assert "the network is worked on" in found["mode_by"]
    assert run("mode", "act").returncode == 2, "nobody to ask"
    assert "observe" in run("mode").stdout
    assert run("mode", "config", "--yes").returncode == 0
    found = json.loads(run("mode", "-o", "json").stdout)
    assert (found["mode"], found["mode_by"]) == ("act", "")


def test_a_silence_is_made_listed_and_ended(run: Run) -> None:
    made = run("alerts", "silence", "rack 7 is moved", "--node", "r7-*", "--for", "2h", "-o", "json")
    assert made.returncode == 0, made.stderr
    silence = json.loads(made.stdout)
    assert (silence["match"], silence["by"]) == ("r7-*", "root")
    (listed,) = json.loads(run("alerts", "silences", "-o", "json").stdout)["silences"]
    assert listed == silence
    assert run("alerts", "end", silence["id"]).returncode == 0
    assert "no active silence" in run("alerts", "silences").stdout


def test_what_is_quiet_says_so(run: Run) -> None:
    for arguments, words in {
        ("lemons",): "no lemon",
        ("stragglers",): "no straggler",
        ("alerts",): "no notification sent",
        ("breaker",): "closed",
        ("breaker", "reset"): "already closed",
    }.items():
        done = run(*arguments)
        assert (done.returncode, words in done.stdout) == (0, True), (arguments, done.stdout, done.stderr)
    unknown = run("alerts", "test", "nobody")
    assert unknown.returncode in (1, 3)
    assert "nobody" in unknown.stdout + unknown.stderr
