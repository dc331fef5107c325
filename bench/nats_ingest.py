"""Reports over NATS: one nats-server, one ingest, one leader, and the load of a fleet. Then the same reports over HTTP.

Usage: python -m bench.nats_ingest [--nodes N] [--seconds S] [--rate R] [--connections N] [--direct]

The generator publishes for all nodes over a few connections; `--connections` opens those of so many nodes beside, with
their tokens, and measures that. `--direct` sends the same reports to the leader over HTTP instead, each node with its own token. Prints
the processor time of each process per report: on a shared machine that is the figure to go by.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import nats
import requests
import uvloop
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.fleet.report_content import Words
from remediator.store.journal import Journal
from remediator.store.token_store import Role, Tokens
from vocabulary.messages.nats_protocol import (
    NodeMessage,
    decode_node_reply,
    encode_envelope,
    node_prefix,
    upward_subject,
)

CLUSTER = "default"
MARK = 10**15  # stands where a report's number goes
TICK = os.sysconf("SC_CLK_TCK")
PUBLISHERS = 4
CONNECTING = 64  # nodes that connect at once
LINKS = 64  # kept HTTP connections
START_S = 60.0
DRAIN_S = 30.0
Send = Callable[[str, int, bytes], Awaitable[None]]  # name of the message, index of its node, body
SERVER = Path(sys.executable).with_name("nats-server")


class Usage(NamedTuple):
    """Of one process: processor seconds, MiB resident."""

    cpu_s: float
    mib: float


class Site:
    """The processes, with tokens for all nodes in the database."""

    def __init__(self, place: Path, nodes: int, *, direct: bool) -> None:
        self.place, self.names, self.direct = place, [f"gpu-{n:05}" for n in range(nodes)], direct
        self.port, self.nats_port = _free_port(), _free_port()
        config, database = place / "r.yaml", place / "r.db"
        config.write_text(
            f"listen: 127.0.0.1:{self.port}\ndatabase: sqlite:///{database}\nmode: recommend\n"
            f"scheduler: {{kind: local, state_file: {place}/holds.json}}\n"
        )
        journal = Journal(f"sqlite:///{database}")
        journal.prepare()
        (place / "ingest.token").write_text(Tokens(journal.engine).issue(Role.INGEST, "bench", time.time()))
        journal.close()
        with sqlite3.connect(database) as db:
            rows = [(hashlib.sha256(name.encode()).hexdigest(), name) for name in self.names]
            db.executemany(
                "INSERT INTO tokens (digest, role, name, issued_at, issued_by, replaces) VALUES (?, 'node', ?, 1, '', 0)",
                rows,
            )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start what the run needs, and wait for it."""
        python = [sys.executable, "-m", "remediator"]
        self._spawn("leader", [*python, "serve", "--config", f"{self.place}/r.yaml"])
        _wait(lambda: requests.get(f"http://127.0.0.1:{self.port}/healthz", timeout=1).ok)
        if self.direct:
            return
        out = ["--out", f"{self.place}/nats", "--listen", f"127.0.0.1:{self.nats_port}", "--store", f"{self.place}/js"]
        subprocess.run([*python, "nats-config", *out], check=True, stdout=subprocess.DEVNULL)
        self._spawn("nats-server", [str(SERVER), "-c", f"{self.place}/nats/nats-server.conf"])
        _wait(self._listens)
        keys = {
            "password_file": f"{self.place}/nats/ingest.password",
            "issuer_file": f"{self.place}/nats/issuer.key",
            "servers": [f"nats://127.0.0.1:{self.nats_port}"],
        }
        document = {
            "controllers": [f"http://127.0.0.1:{self.port}"],
            "token_file": f"{self.place}/ingest.token",
            "nats": keys,
        }
        (self.place / "ingest.yaml").write_text(json.dumps(document))
        self._spawn("ingest", [*python, "ingest", "--config", f"{self.place}/ingest.yaml"])
        _wait(lambda: "ingest of cluster" in (self.place / "ingest.log").read_text())

    def usage(self) -> dict[str, Usage]:
        """Of every process so far."""
        return {name: _usage_of(process.pid) for name, process in self.processes.items()}

    def close(self) -> None:
        """End them."""
        for process in self.processes.values():
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.nats_port)) == 0

    def _spawn(self, name: str, command: list[str]) -> None:
        with (self.place / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)


class Load:
    """Reports at a steady rate, each node in its turn; latencies from when a report was due, in seconds."""

    def __init__(self, site: Site, rate: float) -> None:
        self.site, self.rate = site, rate
        began = time.time() - 3600
        self.bodies = [Words(n, name, "a", began).report(MARK, (), ()) for n, name in enumerate(site.names)]
        self.due: dict[str, float] = {}
        self.latencies: list[float] = []
        self.failed: dict[int, int] = {}
        self.sent = 0
        self._send: Send | None = None

    async def send_for(self, seconds: float) -> None:
        """Send for so long, then wait for the rest of the answers."""
        if self._send is None:
            self._send = await (self._connect_http() if self.site.direct else self._connect_nats())
        began, first = time.monotonic(), self.sent
        while (due := began + (self.sent - first) / self.rate) < began + seconds:
            if (ahead := due - time.monotonic()) > 0:
                await asyncio.sleep(ahead)
            index = self.sent % len(self.bodies)
            seq = str(MARK + 1 + self.sent // len(self.bodies))
            name = f"{index}-{self.sent}"
            self.due[name] = due
            self.sent += 1
            await self._send(name, index, self.bodies[index].replace(str(MARK).encode(), seq.encode()))
        end = time.monotonic() + DRAIN_S
        while self.due and time.monotonic() < end:  # noqa: ASYNC110 - answers come from several places
            await asyncio.sleep(0.05)

    def note(self, name: str, status: int) -> None:
        """An answer came."""
        due = self.due.pop(name, None)
        if due is None:
            return
        self.latencies.append(time.monotonic() - due)
        if status != 200:
            self.failed[status] = self.failed.get(status, 0) + 1

    async def _connect_nats(self) -> Send:
        password = (self.site.place / "nats/ingest.password").read_text().strip()
        url = f"nats://127.0.0.1:{self.site.nats_port}"
        clients: list[Client] = [await nats.connect(url, user="ingest", password=password) for _ in range(PUBLISHERS)]

        async def take(message: Msg) -> None:
            reply = decode_node_reply(message.data)
            self.note(reply.id, reply.status)

        await clients[0].subscribe("gpuhealth.default.node.*.reply", cb=take)

        async def send(name: str, index: int, body: bytes) -> None:
            node = self.site.names[index]
            subject = upward_subject(CLUSTER, "report", node)
            stored = f"{node_prefix(CLUSTER, node)}.stored.{name}"
            await clients[index % PUBLISHERS].publish(subject, encode_envelope(NodeMessage(name, body)), reply=stored)

        return send

    async def _connect_http(self) -> Send:
        queue: asyncio.Queue[tuple[str, int, bytes]] = asyncio.Queue(len(self.bodies))
        self._links = [asyncio.create_task(self._run_link(queue)) for _ in range(LINKS)]

        async def send(name: str, index: int, body: bytes) -> None:
            await queue.put((name, index, body))

        return send

    async def _run_link(self, queue: asyncio.Queue[tuple[str, int, bytes]]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.site.port)
        while True:
            name, index, body = await queue.get()
            node = self.site.names[index]
            head = (
                f"POST /v1/nodes/{node}/report HTTP/1.1\r\nHost: c\r\nAuthorization: Bearer {node}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            self.note(name, int(answer.split(b" ", 2)[1]))


async def _connect_nodes(site: Site, count: int) -> list[asyncio.StreamWriter]:
    """Connections of so many nodes, each with its own token, which the ingest and the leader check; then idle."""
    turns = asyncio.Semaphore(CONNECTING)

    async def connect(node: str) -> asyncio.StreamWriter:
        async with turns:
            reader, writer = await asyncio.open_connection("127.0.0.1", site.nats_port)
            await reader.readline()
            hello = json.dumps({"user": node, "pass": node, "verbose": False, "pedantic": False})
            writer.write(f"CONNECT {hello}\r\nSUB {node_prefix(CLUSTER, node)}.> 1\r\nPING\r\n".encode())
            await reader.readuntil(b"PONG\r\n")
            return writer

    before, began = site.usage(), time.monotonic()
    writers = await asyncio.gather(*(connect(node) for node in site.names[:count]))
    if count:
        print(f"{count} nodes connected in {time.monotonic() - began:.1f} s")
        for name, usage in site.usage().items():
            cpu_us = (usage.cpu_s - before[name].cpu_s) / count * 1e6
            print(f"  {name}: {cpu_us:.0f} us of processor a connection, {usage.mib - before[name].mib:.0f} MiB more")
    return list(writers)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            if ready():
                return
        except (OSError, requests.RequestException):
            pass
        time.sleep(0.05)
    raise SystemExit("a process did not come up")


def _usage_of(pid: int) -> Usage:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Usage((int(fields[11]) + int(fields[12])) / TICK, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


async def _measure(site: Site, options: argparse.Namespace) -> None:
    load = Load(site, options.rate or options.nodes / 10.0)
    idle = await _connect_nodes(site, options.connections) if not site.direct else []
    print(f"report {len(load.bodies[0])} bytes; load average {os.getloadavg()[0]:.1f}; {len(idle)} nodes connected")
    await load.send_for(options.nodes / load.rate)  # the first report of a node is news
    load.latencies.clear()
    load.failed.clear()
    load.due.clear()
    already, before, began = load.sent, site.usage(), time.monotonic()
    await load.send_for(options.seconds)
    lasted, after = time.monotonic() - began, site.usage()
    took = sorted(load.latencies) or [0.0]
    answered = len(load.latencies)
    print(
        f"{load.sent - already} sent in {lasted:.1f} s, {answered} answered, {len(load.due)} not; failed: {load.failed}"
    )
    print(f"latency from due: p50 {took[answered // 2] * 1e3:.1f} ms, p99 {took[int(answered * 0.99)] * 1e3:.1f} ms")
    for name, usage in after.items():
        cpu_s = usage.cpu_s - before[name].cpu_s
        print(f"{name}: {cpu_s:.1f} s processor, {cpu_s / max(answered, 1) * 1e6:.0f} us a report, {usage.mib:.0f} MiB")


def main() -> None:
    """Run once and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=12_500)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=0.0, help="reports a second; default: each node every 10 s")
    parser.add_argument("--connections", type=int, default=0)
    parser.add_argument("--direct", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        site = Site(Path(place), options.nodes, direct=options.direct)
        try:
            site.start()
            uvloop.run(_measure(site, options))
        finally:
            site.close()


if __name__ == "__main__":
    main()
