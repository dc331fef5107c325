"""1 condemns a machine: nothing may end with it but a document that says fail, and that somebody has got."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from preflight.exit_codes import guard_exit_code
from preflight.host.nvml_library import count_gpus

FAILS = (sys.executable, "-m", "preflight", "run", "-o", "json", "--only", "gpu_state", "--inject", "gpu_state:lost")
ENVIRON = os.environ | {"HEALTHD_NVML_LIBRARY": "", "HEALTHD_PREFLIGHT_BASELINE": "/nowhere"}


def ends(shell: str, tmp_path: Path, *command: str) -> tuple[int, str]:
    """Run a failing preflight as a shell would: its exit code, and what came on standard output."""
    words = ["sh", "-c", f'"$@" {shell}', "sh", *(command or FAILS)]
    with (tmp_path / "out").open("w") as out:
        done = subprocess.run(words, stdout=out, stderr=subprocess.DEVNULL, timeout=60, check=False, env=ENVIRON)
    return done.returncode, (tmp_path / "out").read_text()


@pytest.mark.parametrize("deaf", ["2>/dev/full", "2>&-", "<&- 2>&-"])
def test_a_failure_is_told_whoever_listens_to_its_progress(tmp_path: Path, deaf: str) -> None:
    code, said = ends(deaf, tmp_path)
    assert (code, json.loads(said)["verdict"]) == (1, "fail")


@pytest.mark.parametrize("lost", [">/dev/full", ">&-", "<&- >&- 2>&-", "--only nonsense"])
def test_a_failure_that_nobody_got_condemns_nobody(tmp_path: Path, lost: str) -> None:
    assert ends(lost, tmp_path) == (2 if "nonsense" in lost else 3, "")


def test_a_reader_that_is_gone_has_not_got_it() -> None:
    receive, send = os.pipe()
    os.close(receive)
    done = subprocess.run(FAILS, stdout=send, stderr=send, timeout=60, check=False, env=ENVIRON)
    os.close(send)
    assert done.returncode == 3


def test_a_file_that_cannot_be_written_is_told_before_the_tests(tmp_path: Path) -> None:
    done = subprocess.run(
        [*FAILS, "-f", str(tmp_path / "none" / "report")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=ENVIRON,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "begins" not in done.stderr
    assert "cannot be written: No such file or directory; choose another file" in done.stderr


def test_a_file_that_fails_at_the_end_sends_the_document_to_standard_output(tmp_path: Path) -> None:
    code, said = ends("-f /dev/full", tmp_path)
    assert (code, json.loads(said)["verdict"]) == (1, "fail")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_with_its_own_code(number: signal.Signals) -> None:
    default = ["env", "--default-signal=HUP"]  # the tests may run under nohup
    command = [*default, *FAILS[:-1], "gpu_state:hang"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRON
    ) as process:
        assert process.stderr is not None
        assert "begins" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(60) == 128 + number


@pytest.mark.torch
@pytest.mark.skipif(count_gpus() > 0, reason="there is a GPU")
def test_a_run_that_is_ended_leaves_no_folder_behind(tmp_path: Path) -> None:
    command = [*FAILS[:6], "--only", "collectives", "--inject", "collectives:hang"]
    place = tmp_path / "tmp"
    place.mkdir()
    environ = ENVIRON | {"TMPDIR": str(place)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ) as process:
        while not list(place.glob("preflight-*")):
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert not list(place.glob("preflight-*"))


def test_what_cannot_be_imported_says_nothing_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise ImportError('broken')\n")
    environ = ENVIRON | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(FAILS, capture_output=True, text=True, timeout=60, check=False, env=environ)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("preflight: cannot start: broken")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(28, "No space left on device"), 3),
        (FileNotFoundError("No usable temporary directory found"), 3),
        (BrokenPipeError(), 3),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.FileError("x"), 3),  # click's own code for it is 1
        (click.UsageError("x"), 2),
        (click.exceptions.Exit(0), None),
        (SystemExit(1), 1),
    ],
)
def test_only_an_exit_that_is_asked_for_ends_with_1(error: BaseException, code: int | None) -> None:
    ended: object = None
    try:
        with guard_exit_code():
            raise error
    except SystemExit as end:
        ended = end.code
    assert ended == code


def test_handlers_of_signals_are_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with guard_exit_code():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
