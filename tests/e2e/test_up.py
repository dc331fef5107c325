"""This machine as a cluster of one: real processes, the machine's own kernel log and driver, as a person starts them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from healthctl.process_supervision.supervisor import list_descendants
from tests.e2e.healthd_node import eventually, fake_nvml

HEALTHCTL = [sys.executable, "-m", "healthctl"]
DEADLINE_S = 90


class Up:
    """One `healthctl up`, its words, and the programs below it."""

    def __init__(self, place: Path, *options: str, **variables: str) -> None:
        self.directory = place / "state"
        self.said = place / "said"
        argv = [*HEALTHCTL, "up", "--dir", str(self.directory), "--node", "alone", *options]
        env = {key: value for key, value in os.environ.items() if not key.startswith("HEALTHCTL_")} | variables
        with self.said.open("wb") as out:
            self.process = subprocess.Popen(argv, stdout=out, stderr=out, env=env)

    def variable(self, name: str) -> str:
        """What it tells people to export."""

        def told() -> str | None:
            assert self.process.poll() is None, self.said.read_text()
            found = re.search(rf"export {name}=(\S+)", self.said.read_text())
            return found[1] if found else None

        return eventually(told, self.said.read_text, DEADLINE_S)

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {name: self.variable(name) for name in ("HEALTHCTL_SERVER", "HEALTHCTL_TOKEN_FILE")}
        return subprocess.run(
            [*HEALTHCTL, *arguments], env=env, capture_output=True, text=True, check=False, timeout=60
        )

    def end(self, how: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def bring_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Up]]:
    """Short paths, for the UNIX socket; whatever still runs is ended."""
    place = tmp_path_factory.mktemp("u")
    ups: list[Up] = []

    def start(*options: str, **variables: str) -> Up:
        ups.append(Up(place, *options, **variables))
        return ups[-1]

    yield start
    for up in ups:
        if up.process.poll() is None:
            up.end(signal.SIGTERM)


@pytest.mark.timeout(3 * DEADLINE_S)
def test_a_machine_comes_up_as_a_cluster_of_one_and_goes_on_where_it_ended(
    bring_up: Callable[..., Up], nvml_library: Path, tmp_path: Path
) -> None:
    first = bring_up()
    url, token_file = first.variable("HEALTHCTL_SERVER"), Path(first.variable("HEALTHCTL_TOKEN_FILE"))
    assert requests.get(f"{url}/healthz", timeout=20).ok
    status = json.loads(first.ask("status", "-o", "json").stdout)
    assert (status["mode"], status["nodes_total"]) == ("observe", 1)
    (node,) = json.loads(first.ask("nodes", "-o", "json").stdout)["nodes"]
    assert node["node"] == "alone"
    assert "absent: hardware" in first.said.read_text() or node.get("gpus") or Path("/dev/nvidia0").exists()

    second = subprocess.run(
        [*HEALTHCTL, "up", "--dir", str(first.directory)], capture_output=True, text=True, check=False, timeout=60
    )
    assert second.returncode == 3
    assert f"already running at {url}" in second.stderr

    assert first.ask("mode", "recommend", "to see", "--yes").returncode == 0

    below, token = list_descendants(first.process.pid), token_file.read_text()
    assert len(below) >= 3, "a supervisor and its two programs"
    assert token_file.stat().st_mode & 0o077 == 0
    assert first.end() == 0, first.said.read_text()
    eventually(lambda: not [pid for pid in below if Path(f"/proc/{pid}").exists()], "everything below it ended")

    (tmp_path / "libnvidia-ml.so.1").symlink_to(nvml_library)  # by now a driver was installed
    fake_nvml().write_scenario(tmp_path / "scenario", ["gpus 8"])
    again = bring_up(LD_LIBRARY_PATH=str(tmp_path), FAKE_NVML_SCENARIO=str(tmp_path / "scenario"))
    assert Path(again.variable("HEALTHCTL_TOKEN_FILE")).read_text() == token
    status = json.loads(again.ask("status", "-o", "json").stdout)
    assert status["epoch"] == 2, "the same database, the next term"
    assert "recommend, set by" in again.said.read_text(), "it says what is, not what is usual"
    assert "8 GPUs" in again.said.read_text()
    assert again.end(signal.SIGTERM) == 0


def test_a_port_that_is_taken_is_wrong_usage(bring_up: Callable[..., Up]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        up = bring_up("--port", str(taken.getsockname()[1]))
        assert up.process.wait(DEADLINE_S) == 2
    assert "the port is in use" in up.said.read_text()
