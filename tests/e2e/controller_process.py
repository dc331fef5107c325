"""A remediator process of its own, asked over real HTTP."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import requests
from click.testing import CliRunner

from remediator.main import main

START_DEADLINE_S = 90.0


_ISSUING = threading.Lock()


def issue_token(config: Path, kind: str, name: str) -> str:
    """A new token, by `remediator token issue` in this process: one of its own takes most of a second to import."""
    with _ISSUING:  # the runner takes this process' standard output, and nodes are made in threads
        done = CliRunner().invoke(main, ["token", "issue", kind, name, "--config", str(config)])
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


class Controller:
    """One remediator on a free port, with tokens for two nodes and an operator."""

    def __init__(self, place: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.config = place / "remediator.yaml"
        self.config.write_text(
            f"listen: 127.0.0.1:{self.port}\ndatabase: sqlite:///{place}/r.db\nmode: act\n"
            f"scheduler: {{kind: local, state_file: {place}/holds.json, poll_busy_s: 0.1}}\n"
        )
        self.tokens = {name: self.issue("--node", name) for name in ("n1", "n2")} | {
            "ann": self.issue("--operator", "ann")
        }
        self.process: subprocess.Popen[bytes] | None = None

    def issue(self, kind: str, name: str) -> str:
        """A new token."""
        return issue_token(self.config, kind, name)

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "remediator", "serve", "--config", str(self.config)])
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            try:
                if requests.get(f"{self.url}/healthz", timeout=1).ok:
                    return
            except (requests.ConnectionError, requests.Timeout):  # a busy machine's takes a second to answer
                pass
            time.sleep(0.05)
        self.end(signal.SIGKILL)
        raise AssertionError("the remediator did not come up")

    def end(self, how: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(START_DEADLINE_S)

    def call(self, method: str, path: str, who: str, **more: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.tokens.get(who, who)}"}
        return requests.request(method, self.url + path, headers=headers, timeout=60, **more)
