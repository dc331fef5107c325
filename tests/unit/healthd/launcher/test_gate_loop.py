"""The launcher and daemons whose word changes: a spare that returns, a node that falls ill while its ranks run."""

from __future__ import annotations

import http.server
import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

DEADLINE_S = 60.0
Daemon = Callable[..., None]


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Makes a node's daemon that gives each of these answers once, and the last one for ever."""
    with ExitStack() as stack:

        def make(node: str, *answers: str) -> None:
            left = list(answers)

            class Verdict(http.server.BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    health = left.pop(0) if len(left) > 1 else left[0]
                    body = json.dumps(
                        {"fit": health == "healthy", "health": health, "reasons": [], "age_s": 0.0}
                    ).encode()
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

                def address_string(self) -> str:
                    return node

                def log_message(self, *_: object) -> None:
                    pass

            server = stack.enter_context(_Server(str(tmp_path / f"{node}.sock"), Verdict))
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)

        yield make


def launch(tmp_path: Path, *options: str, script: str) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """What became of a job on n0, n1 and n2, and the nodes of each attempt."""
    events = tmp_path / "events"
    argv = [sys.executable, "-m", "healthctl.main", "launch", "--backend=local", "--node-names=n0,n1,n2"]
    argv += [f"--events={events}", "--backoff-seconds=0.01", *options, "--", "sh", "-c", script]
    environ = {**os.environ, "HEALTHD_SOCKET": str(tmp_path / "{node}.sock")}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    return done, [line["nodes"] for line in lines if line["event"] == "attempt_started"]


def test_a_job_that_shrank_has_its_size_back_when_a_spare_returns(daemon: Daemon, tmp_path: Path) -> None:
    daemon("n0", "healthy")
    daemon("n1", "healthy")
    daemon("n2", "unhealthy", "healthy")

    done, attempts = launch(tmp_path, "--min-nodes=2", script='[ "$WORLD_SIZE" = 3 ] && exit 0; exit 91')

    assert done.returncode == 0, done.stderr
    assert attempts == [["n0", "n1"], ["n0", "n1", "n2"]]


def test_a_common_crash_is_nobodys_mistake_when_a_node_fell_ill(daemon: Daemon, tmp_path: Path) -> None:
    daemon("n0", "healthy")
    daemon("n1", "healthy", "unhealthy")
    daemon("n2", "healthy")
    script = '[ "$HEALTHD_ATTEMPT" = 2 ] && exit 0; exit 1'

    done, attempts = launch(tmp_path, "--spares=1", script=script)

    assert done.returncode == 0, done.stderr
    assert attempts == [["n0", "n1"], ["n0", "n2"]]


def test_a_common_crash_on_nodes_that_stay_healthy_is_the_users(daemon: Daemon, tmp_path: Path) -> None:
    for node in ("n0", "n1", "n2"):
        daemon(node, "healthy")

    done, attempts = launch(tmp_path, script="exit 3")

    assert done.returncode == 3
    assert len(attempts) == 1
    assert "3 of 3 ranks exited with 3" in done.stderr


STUCK = '[ "$HEALTHD_ATTEMPT" = 2 ] && exit 0; sleep 60'


def test_a_node_that_falls_ill_while_the_ranks_start_is_left_before_their_time_out(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon("n0", "healthy")
    daemon("n1", "healthy", "unhealthy")
    daemon("n2", "healthy")

    done, attempts = launch(tmp_path, "--spares=1", "--look-again-seconds=0.3", script=STUCK)

    assert done.returncode == 0, done.stderr
    assert attempts == [["n0", "n1"], ["n0", "n2"]]
    assert "lost after" in done.stderr
    assert "n1 has become unfit" in done.stderr
