"""Who the elastic agent is, and when it is told to leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.adapters.torchrun import _read_parent_pid, agent_notified, find_elastic_agent
from healthd.trainer.exit_codes import ExitCode, Leave

INSIDE = {"TORCHELASTIC_RUN_ID": "job"}
RANK = """
import os, sys
from healthd.trainer.adapters.torchrun import agent_notified
from healthd.trainer.exit_codes import ExitCode, Leave
with agent_notified():
    raise Leave(ExitCode(int(sys.argv[1])))
"""


def process(proc: Path, pid: str, parent: int, *environ: str, command: str = "python") -> None:
    place = proc / pid
    place.mkdir()
    (place / "stat").write_text(f"1 ({command}) S {parent} 1 1 0")
    (place / "environ").write_bytes(b"\0".join(each.encode() for each in environ))


def test_the_agent_is_the_nearest_ancestor_that_did_not_inherit_the_run(tmp_path: Path) -> None:
    process(tmp_path, "self", 30, "TORCHELASTIC_RUN_ID=job")
    process(tmp_path, "30", 20, "A=1", "TORCHELASTIC_RUN_ID=job", command="sh) S 99 (x")
    process(tmp_path, "20", 10, "TORCHELASTIC_RUN_ID=jobs")
    process(tmp_path, "10", 1)
    assert find_elastic_agent(INSIDE, tmp_path) == 20


def test_without_torchrun_there_is_no_agent() -> None:
    assert find_elastic_agent({}) is None


def test_an_ancestor_that_cannot_be_looked_at_ends_the_search(tmp_path: Path) -> None:
    process(tmp_path, "self", 30, "TORCHELASTIC_RUN_ID=job")
    assert find_elastic_agent(INSIDE, tmp_path) is None


@given(st.text(max_size=40))
def test_no_stat_file_is_too_odd(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    place = tmp_path_factory.mktemp("process")
    (place / "stat").write_text(text)
    parent = _read_parent_pid(place)
    assert parent is None or isinstance(parent, int)


@pytest.mark.parametrize(
    ("code", "local_rank", "told"),
    [
        (ExitCode.CONDEMNED, "0", True),
        (ExitCode.CONDEMNED, "1", False),
        (ExitCode.RELAUNCH, "0", False),
        (ExitCode.ABORTED, "0", False),
    ],
)
def test_only_the_first_rank_of_a_condemned_node_tells_it(code: ExitCode, local_rank: str, told: bool) -> None:  # noqa: FBT001 - a table
    # A stand-in agent: starts the rank with the run's id in its environment, and waits.
    agent = (
        "import os, subprocess, sys, time\n"
        f"rank = subprocess.run([sys.executable, '-c', sys.argv[1], '{int(code)}'],"
        f" env={{**os.environ, 'TORCHELASTIC_RUN_ID': 'r', 'LOCAL_RANK': '{local_rank}'}})\n"
        "time.sleep(0.2)\nsys.exit(rank.returncode)\n"
    )
    environ = {name: value for name, value in os.environ.items() if name != "TORCHELASTIC_RUN_ID"}
    done = subprocess.run([sys.executable, "-c", agent, RANK], env=environ, check=False, capture_output=True)
    assert done.returncode == (-signal.SIGTERM if told else int(code)), done.stderr


def test_a_normal_end_passes_through() -> None:
    with agent_notified({}):
        pass
    with pytest.raises(Leave), agent_notified({}):
        raise Leave(ExitCode.CONDEMNED)
