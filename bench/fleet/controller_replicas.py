"""The real remediator: one replica on a file, two on PostgreSQL; all on the first core, the rest of the run on the others."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import requests

PATIENCE_S = 60.0
CORE = 0
ROOT = Path(__file__).parents[2]


class Replica:
    """One process at a time, always at the same port."""

    def __init__(self, place: Path, number: int, port: int, database: str, certificate: tuple[str, str] | None) -> None:
        """Args: `create_certificate`: its file and the key's; None: plain HTTP."""
        self.port = port
        self.url = f"{'https' if certificate else 'http'}://localhost:{port}"
        self._verify: str | bool = certificate[0] if certificate else True
        self._config = place / f"r{number}.yaml"
        self._log = place / f"r{number}.log"
        tls = f"tls: {{certificate: {certificate[0]}, key: {certificate[1]}}}\n" if certificate else ""
        self._config.write_text(
            f"listen: 127.0.0.1:{port}\ndatabase: {database}\nmode: recommend\n{tls}"
            f"scheduler: {{kind: local, state_file: {place}/holds.json}}\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin."""
        pinned = ("taskset", "-c", str(CORE)) if (os.cpu_count() or 1) > 1 else ()
        command = [*pinned, sys.executable, "-m", "remediator", "serve", "--config", str(self._config)]
        with self._log.open("a") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    @property
    def leads(self) -> bool:
        """Whether it is the one to ask."""
        try:
            return requests.get(f"{self.url}/healthz", timeout=5, verify=self._verify).status_code == 200
        except requests.RequestException:
            return False

    def metrics(self) -> str:
        """Its page for Prometheus; empty where it does not answer."""
        try:
            return requests.get(f"{self.url}/metrics", timeout=10, verify=self._verify).text
        except requests.RequestException:
            return ""

    def end(self, how: signal.Signals) -> None:
        """End it with a signal, and wait for that."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE_S)


class Centre:
    """Its replicas. Whoever kills the leader of one that is alone starts it again, as a service manager would."""

    def __init__(self, place: Path, database: str, ports: tuple[int, ...], certificate: tuple[str, str] | None) -> None:
        self.replicas = [Replica(place, n, port, database, certificate) for n, port in enumerate(ports)]

    def start(self) -> float:
        """Start them all; seconds until one leads."""
        begun = time.monotonic()
        for replica in self.replicas:
            replica.start()
        self.leader()
        return time.monotonic() - begun

    def leader(self) -> Replica:
        """The one that leads, as soon as there is one.

        Raises:
            TimeoutError: none does for long; the logs in the run's directory say why.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for replica in self.replicas:
                if replica.leads:
                    return replica
            time.sleep(0.05)
        raise TimeoutError(f"no remediator leads after {PATIENCE_S:g} s; see r*.log in the run's directory")

    def kill_leader(self) -> None:
        """End the one that leads as a machine's failure would, and start it again at once, to stand by or to lead."""
        leader = self.leader()
        leader.end(signal.SIGKILL)
        leader.start()

    def stop(self) -> None:
        """End them all in good order."""
        for replica in self.replicas:
            replica.end(signal.SIGTERM)


def free_ports(count: int) -> tuple[int, ...]:
    """Ports of this machine that nobody listens on, below those that connections take."""
    found: list[int] = []
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
        if len(found) == count:
            return tuple(found)
    raise OSError("no port is free between 20000 and 32000")


def create_certificate(place: Path) -> tuple[str, str]:
    """A certificate of this run for localhost, and its key."""
    files = (str(place / "tls.crt"), str(place / "tls.key"))
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
            ),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-out", files[0], "-keyout", files[1]),
        ],
        check=True,
        capture_output=True,
    )
    return files
