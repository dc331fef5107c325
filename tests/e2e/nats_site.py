"""A site that uses NATS: a real nats-server, a remediator on SQLite, ingest processes, and nodes that speak the protocol."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from controller_process import Controller
from healthd_node import eventually

from healthd.config import NatsConfig, RemediatorConfig
from healthd.controller.nats_client import NatsControllerClient
from healthd.controller.nats_connection import NatsConnection
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import FindingChange, Report

NATS_SERVER = Path(sys.executable).with_name("nats-server")
END_S = 30.0


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class NatsSite:
    """One of everything; each process can be killed and started again."""

    def __init__(self, place: Path, *, store: Path | None = None, store_bytes: int = 1 << 30, **ingest: Any) -> None:
        self.place, self.port = place, free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.controller = Controller(place)
        command = [sys.executable, "-m", "remediator", "nats-config", "--out", str(place / "nats")]
        command += ["--listen", f"127.0.0.1:{self.port}", "--store", str(store or place / "store")]
        subprocess.run([*command, "--store-bytes", str(store_bytes)], check=True, stdout=subprocess.DEVNULL)
        (place / "ingest.token").write_text(self.controller.issue("--ingest", "i1"))
        keys = {"password_file": f"{place}/nats/ingest.password", "issuer_file": f"{place}/nats/issuer.key"}
        nats = {"servers": [self.url], "stream_bytes": 64 << 20, **keys, **ingest}
        document = {"controllers": [self.controller.url], "token_file": f"{place}/ingest.token", "nats": nats}
        (place / "ingest.yaml").write_text(json.dumps(document))
        self.server: subprocess.Popen[bytes] | None = None
        self.ingest: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start everything."""
        self.start_server()
        self.controller.start()
        self.start_ingest()

    def start_server(self) -> None:
        """Start nats-server; returns once it accepts connections."""
        self.server = self._spawn([str(NATS_SERVER), "-c", f"{self.place}/nats/nats-server.conf"], "nats-server.log")
        eventually(self._listens, lambda: f"nats-server listens: {self.log('nats-server.log')}")

    def start_ingest(self) -> None:
        """Start an ingest process; does not wait for it."""
        command = [sys.executable, "-m", "remediator", "ingest", "--config", f"{self.place}/ingest.yaml"]
        self.ingest = self._spawn(command, "ingest.log")

    def log(self, name: str) -> str:
        """What a process said so far."""
        return (self.place / name).read_text()

    def node_section(self, name: str) -> dict[str, Any]:
        """The section `remediator` of a node's configuration."""
        token = self.place / f"{name}.token"
        if not token.exists():
            token.write_text(self.controller.tokens.get(name) or self.controller.issue("--node", name))
        section = {"url": self.controller.url, "token_file": str(token), "report_interval_s": 0.5}
        return {**section, "nats": {"servers": [self.url]}}

    def node_config(self, name: str) -> RemediatorConfig:
        """The same, as healthd reads it."""
        section = self.node_section(name)
        return RemediatorConfig(
            url=section["url"], token_file=Path(section["token_file"]), nats=NatsConfig(servers=(self.url,))
        )

    def close(self) -> None:
        """Kill whatever still runs."""
        for process in (self.ingest, self.server, self.controller.process):
            if process is not None:
                end(process)

    def _spawn(self, command: list[str], name: str) -> subprocess.Popen[bytes]:
        with (self.place / name).open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ.copy())

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def end(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGKILL) -> None:
    """Kill a process, also one that was stopped, and wait for its end."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.send_signal(how)
    process.wait(END_S)


class SmallNode:
    """A node that only reports: a connection, a client, and findings that it sends until they are acknowledged."""

    def __init__(self, site: NatsSite, name: str) -> None:
        config = site.node_config(name)
        self.name = name
        self.connection = NatsConnection(config, name)
        self.connection.start()
        self.client = NatsControllerClient(config, name, self.connection)
        self.seq = 0

    def report(self, *changes: FindingChange) -> Report:
        """A report with these changes."""
        self.seq += 1
        return Report(
            version=1,
            node=self.name,
            boot_id="b",
            agent=f"a-{self.name}",
            seq=self.seq,
            sent_at=time.time(),
            ttl_s=30.0,
            health=Health.HEALTHY,
            changes=changes,
            active=tuple(change.finding for change in changes),
        )

    def close(self) -> None:
        """Disconnect."""
        self.connection.stop()
        self.client.close()


def make_change(node: str, number: int, severity: Severity = Severity.WARNING) -> FindingChange:
    """Change `number` of a node: a finding about its GPU of that number."""
    component = Component(ComponentKind.GPU, f"GPU-{number:04}", f"0000:{number:02x}:00.0", number)
    at, origin = time.time(), f"b:{number}"
    finding = Finding(
        id=finding_id(node, "ecc", "sbe", component, origin),
        node=node,
        check="ecc",
        code="sbe",
        component=component,
        severity=severity,
        summary="made for a test",
        first_seen=at,
        last_seen=at,
        origin=origin,
        boot_id="b",
    )
    return FindingChange(number, finding)
