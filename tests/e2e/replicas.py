"""Several remediators on one PostgreSQL: real processes, told apart by their ports, found by asking who is ready."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from controller_process import issue_token
from sqlalchemy.engine import make_url

from tests.postgresql import Cluster

PATIENCE_S = 90.0  # a busy machine; nothing is asserted about time
SITE = """\
playbook: 1
include: [shipped/default.yaml]
rules:
  - name: ours
    why: every kind of effect once
    match: {findings: [row_remap/pending]}
    steps:
      - cordon
      - {exec: note}
      - drain
      - {preflight: gate}
      - return_to_service
"""
# Slow enough to be killed within, and says for which action and which replica it ran.
NOTE = 'line=$(cat); echo "begin $PPID $line" >>{place}/noted; sleep 0.7; echo "end $PPID $line" >>{place}/noted'


def until(question: Callable[[], Any], words: str) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := question()):
        assert time.monotonic() < deadline, words
        time.sleep(0.02)
    return answer


class Replica:
    """One process; started again after its end, it is another process with the same address."""

    def __init__(self, place: Path, number: int, common: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.config = place / f"r{number}.yaml"
        self.config.write_text(f"listen: 127.0.0.1:{port}\n{common}")
        self.log = place / f"r{number}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin; returns when it answers at all."""
        command = [sys.executable, "-m", "remediator", "serve", "--config", str(self.config)]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: self.health() is not None or self.running.poll() is not None, "a replica did not come up")

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The process."""
        assert self.process is not None
        return self.process

    def health(self) -> dict[str, Any] | None:
        """What it says of itself; None if it does not answer."""
        try:
            answer = requests.get(f"{self.url}/healthz", timeout=1)
        except requests.RequestException:
            return None
        found: dict[str, Any] = answer.json()
        assert answer.status_code == (200 if found["ready"] else 503)
        return found

    def end(self, how: signal.Signals) -> None:
        """Send it a deadly signal, and wait for its end."""
        self.running.send_signal(how)
        self.running.wait(PATIENCE_S)


class Replicas:
    """Three remediators that share a database, a scheduler and a playbook."""

    def __init__(self, place: Path, cluster: Cluster, count: int = 3) -> None:
        self.place = place
        self.cluster = cluster
        self.database = cluster.database()
        self.name = str(make_url(self.database).database)
        (place / "site.yaml").write_text(SITE)
        hook = json.dumps(["/bin/sh", "-c", NOTE.replace("{place}", str(place))])
        common = (
            f"database: {self.database}\nmode: act\nplaybooks: [{place}/site.yaml]\n"
            f"hooks: {{note: {{command: {hook}}}}}\n"
            f"scheduler: {{kind: local, state_file: {place}/holds.json, poll_busy_s: 0.1}}\n"
        )
        self.all = [Replica(place, number, common) for number in range(count)]
        config = self.all[0].config
        self.tokens = {"n1": issue_token(config, "--node", "n1"), "ann": issue_token(config, "--operator", "ann")}

    def start(self) -> None:
        """Start them all."""
        for replica in self.all:
            replica.start()

    def close(self) -> None:
        """End whatever still runs."""
        for replica in self.all:
            if replica.process is not None and replica.process.poll() is None:
                replica.end(signal.SIGKILL)

    def leader(self, but: Replica | None = None) -> Replica:
        """The one that is ready, as soon as there is one."""
        found: Replica = until(lambda: next((r for r in self.all if r is not but and _ready(r)), None), self._logs())
        return found

    def call(self, method: str, path: str, who: str, at: Replica | None = None, **more: Any) -> requests.Response:
        """Ask the leader as a node's daemon would: again, as long as nobody takes it."""

        def once() -> requests.Response | None:
            headers = {"Authorization": f"Bearer {self.tokens[who]}"}
            try:
                url = (at or self.leader()).url + path
                answer = requests.request(method, url, headers=headers, timeout=30, **more)
            except requests.RequestException:
                return None
            return None if answer.status_code == 503 else answer

        found: requests.Response = until(once, f"nobody took {method} {path}")
        return found

    def sql(self, statement: str) -> list[str]:
        """Rows of a question to the database itself."""
        return self.cluster.sql(self.name, statement).splitlines()

    def noted(self, word: str) -> list[tuple[int, str]]:
        """What the hook wrote under a word: the replica that ran it, and the action's id."""
        file = self.place / "noted"
        lines = file.read_text().splitlines() if file.exists() else []
        parts = [line.split(" ", 2) for line in lines if line.startswith(f"{word} ")]
        return [(int(pid), json.loads(message)["id"]) for _, pid, message in parts]

    def held(self) -> list[str]:
        """The nodes that the scheduler holds."""
        file = self.place / "holds.json"
        return list(json.loads(file.read_text())["holds"]) if file.exists() else []

    def _logs(self) -> str:
        return "nobody leads; see " + ", ".join(str(r.log) for r in self.all)


def _ready(replica: Replica) -> bool:
    health = replica.health()
    return health is not None and bool(health["ready"])
