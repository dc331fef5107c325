from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from healthctl.main import COMMANDS, ELSEWHERE
from healthctl.rendering.blocks import escape_control_chars, format_table, format_timestamp
from tests.unit.healthctl.conftest import Remediator

Run = Callable[..., Result]

HEAVY = {
    "torch",
    "numpy",
    "requests",
    "urllib3",
    "sqlalchemy",
    "starlette",
    "pynvml",
    "prometheus_client",
    "uvicorn",
    "jinja2",
    "rich",
}


@pytest.mark.parametrize(
    "arguments", [["version"], ["--help"], ["xid", "explain", "79"], ["xid", "parse", "/dev/null"]]
)
def test_a_simple_command_imports_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys, json\nfrom healthctl.main import cli\n"
        f"try: cli({arguments!r}, prog_name='healthctl')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not HEAVY & set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "command", [["status"], ["nodes"], ["incidents", "show", "inc-1"], ["nodes", "cordon", "n1", "w"]]
)
def test_a_command_that_asks_the_centre_imports_no_more_than_it_shows(
    serve: Callable[..., str], token_file: Path, command: list[str]
) -> None:
    arguments = [*command, "--server", serve(Remediator), "--token-file", str(token_file)]
    script = (
        "import sys, json\nfrom healthctl.main import cli\n"
        f"try: cli({arguments!r}, prog_name='healthctl')\n"
        "except SystemExit: pass\n"
        "print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    environment = os.environ | {"NO_PROXY": "*"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "urllib.request" in loaded, done.stderr
    assert not (HEAVY | {"yaml", "asyncio", "dataclasses"}) & loaded


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_is_here_has_its_help(healthctl: Run, name: str) -> None:
    module = COMMANDS[name][0].partition(":")[0]
    if importlib.util.find_spec(module.rpartition(".")[0]) is None or importlib.util.find_spec(module) is None:
        assert healthctl(name).exit_code == 3
    else:
        done = healthctl(name, "--help")
        assert done.exit_code == 0, done.stderr
        assert "Usage: healthctl" in done.stdout


def test_help_lists_every_command_and_the_exit_codes(healthctl: Run) -> None:
    text = healthctl("--help").stdout
    assert all(name in text for name in COMMANDS)
    assert "Exit codes: 0" in text


def test_an_unknown_command_is_wrong_usage(healthctl: Run) -> None:
    assert healthctl("bogus").exit_code == 2
    mistyped = healthctl("statsu")
    assert (mistyped.exit_code, mistyped.stdout) == (2, "")
    assert "Did you mean status?" in mistyped.stderr
    assert "Did you mean" not in healthctl("\x1b[2J").stderr


@pytest.mark.parametrize("word", ELSEWHERE)
def test_who_thinks_of_another_word_is_told_what_is_there(healthctl: Run, word: str) -> None:
    done = healthctl(word)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"Did you mean 'healthctl {ELSEWHERE[word]}'?" in done.stderr
    assert healthctl(*ELSEWHERE[word].split(), "--help").exit_code == 0


@pytest.mark.parametrize(
    "arguments", [["--help"], ["nodes", "-h"], ["man"], ["xid", "explain", "79"], ["version", "-o", "json"]]
)
def test_a_reader_that_has_enough_ends_it_quietly_as_it_ends_other_programs(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "healthctl", *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")


def test_a_shell_sees_what_it_sees_of_others(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    log.write_text("kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n" * 5000)
    script = f"set -o pipefail; '{sys.executable}' -m healthctl xid parse '{log}' | head -n 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, len(done.stdout.splitlines()), done.stderr) == (128 + signal.SIGPIPE, 1, "")


def test_another_pipe_that_breaks_is_said() -> None:
    script = (
        "from healthctl import main\n"
        "def broken(*_, **__): raise BrokenPipeError(32, 'Broken pipe')\n"
        "main.click.Command.make_context = broken\nmain.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (3, "healthctl: output: [Errno 32] Broken pipe\n")


def test_the_version_is_that_of_the_package(healthctl: Run) -> None:
    found = json.loads(healthctl("version", "-o", "json").stdout)
    assert found["version"]
    assert found["wire"] == 1


def test_a_full_disk_behind_the_output_is_one_line_and_no_success() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "healthctl.main", "xid", "explain", "79"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode not in (0, 1, 2)
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@given(st.text())
def test_nothing_that_is_cleaned_can_steer_a_terminal(text: str) -> None:
    assert escape_control_chars(text).isprintable()
    assert escape_control_chars(text) == text or not text.isprintable()


def test_columns_stand_under_each_other() -> None:
    assert format_table(("A", "LONG"), [("aaa", "b"), ("c", "")]) == "A    LONG\naaa  b\nc"


@pytest.mark.parametrize(
    ("at", "text"), [(None, "-"), (0.0, "1970-01-01 00:00:00Z"), (1e30, "1e+30"), (float("nan"), "nan")]
)
def test_a_time_is_always_printable(at: float | None, text: str) -> None:
    assert format_timestamp(at) == text
