from __future__ import annotations

import subprocess
import sys

import pytest

from preflight.execution.progress_output import LineProgress, format_result_line
from preflight.results import Outcome, Result


def test_progress_is_lines_on_standard_error_where_nobody_looks_on(capsys: pytest.CaptureFixture[str]) -> None:
    LineProgress().begins("gpu_state")
    LineProgress().ended((Result(test="gpu_state", outcome=Outcome.FAIL, device="GPU 1", reason="lost"),))
    said = capsys.readouterr()
    assert said.out == ""
    assert [text.split() for text in said.err.splitlines()] == [
        ["preflight:", "gpu_state", "begins"],
        ["preflight:", "gpu_state", "fail", "GPU", "1", "lost"],
    ]


def test_a_library_s_words_cannot_steer_a_terminal() -> None:
    assert "\x1b" not in format_result_line(Result(test="t", outcome=Outcome.ERROR, reason="\x1b[2J gone\r\n"))


@pytest.mark.parametrize(("only", "news"), [("gpu_state", "names a library that cannot be loaded"), ("software", "")])
def test_a_terminal_gets_a_bar_and_what_is_no_pass(only: str, news: str) -> None:
    code = (
        "import os, pty, sys\n"
        f"command = [sys.executable, '-m', 'preflight', 'run', '--only', {only!r}, '-f', '/dev/null']\n"
        f"os.environ['HEALTHD_NVML_LIBRARY'] = {'/dev/null' if news else ''!r}\n"
        "sys.exit(os.waitstatus_to_exitcode(pty.spawn(command)) and 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, stdin=subprocess.DEVNULL
    )
    assert f"{only:<18}" in done.stdout
    assert "100%" in done.stdout
    assert news in done.stdout
