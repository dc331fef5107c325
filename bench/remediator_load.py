"""One remediator under a whole fleet: reports, order polls, a burst of faulty nodes, growth, start with a long history.

Usage: bench/remediator_load.py [--nodes N] [--seconds S] [--polls] [--history N]

Prints a table of what was measured beside its budget, in less than three minutes on a quiet machine. The remediator has the first
core for itself, the pretended nodes the second. Its processor time is given beside every rate: on a machine that others use as
well, that is the figure to go by; the load average and what the remediator got of its core say how quiet it was.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import uvloop

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from remediator.store.journal import Journal  # noqa: E402 - behind the path
from vocabulary.finding import Finding, Severity, finding_id  # noqa: E402 - same
from vocabulary.health import Health  # noqa: E402 - same
from vocabulary.identity import Component, ComponentKind  # noqa: E402 - same
from vocabulary.messages.wire import FindingChange, Gpu, RankStatus, Report, encode_message  # noqa: E402 - same

PORT_MIN = 20_000
DICE = random.Random(7)  # noqa: S311 - when nodes report, no secret
GPUS = 8
INTERVAL_S = 10.0
MARK = 10**15  # stands where a report's number goes
TICK = os.sysconf("SC_CLK_TCK")
INGEST_P99_MS, MEMORY_MIB, BURST_S = 50.0, 1024.0, 5.0  # budgets
BURST_GIVEN_UP_S = 60.0
FAULTS_PER_NODE_DAY = 4
SECTIONS = dict.fromkeys(("data", "forward", "backward", "communication", "optimizer"), 0.1234567)


class Usage(NamedTuple):
    """Of the remediator: processor seconds, MiB resident."""

    cpu_s: float
    mib: float


class Fleet:
    """Pretended nodes against one remediator."""

    def __init__(self, place: Path, nodes: int) -> None:
        self.names = [f"gpu-{n:05}" for n in range(nodes)]
        self.port = DICE.randrange(PORT_MIN, PORT_MIN + 10_000)
        self.database = place / "r.db"
        self.config = place / "r.yaml"
        self.config.write_text(
            f"listen: 127.0.0.1:{self.port}\ndatabase: sqlite:///{self.database}\nmode: recommend\n"
            f"scheduler: {{kind: local, state_file: {place}/holds.json}}\n"
        )
        self.seq = dict.fromkeys(self.names, 0)
        self.took: list[float] = []  # seconds an answer
        self.joined: list[float] = []  # the same
        self.joined_from = 0.0
        self.failed: dict[str, int] = {}
        self.sent = 0
        self.bodies: dict[str, bytes] = {}
        self.process: subprocess.Popen[bytes] | None = None
        Journal(f"sqlite:///{self.database}").prepare()
        with sqlite3.connect(self.database) as db:
            db.executemany(
                "insert into tokens (digest, role, name, issued_at) values (?, 'node', ?, 0)",
                [(hashlib.sha256(f"ghd_{name}".encode()).hexdigest(), name) for name in self.names],
            )

    def start(self) -> float:
        """Start it; seconds until it is ready."""
        begun = time.monotonic()
        command = ["taskset", "-c", "0", sys.executable, "-m", "remediator", "serve", "--config", str(self.config)]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        asyncio.run(self._ready())
        return time.monotonic() - begun

    def stop(self) -> None:
        """End it in good order."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def usage(self) -> Usage:
        """What it has used until now."""
        assert self.process is not None
        place = Path(f"/proc/{self.process.pid}")
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        resident = re.search(r"VmRSS:\s+(\d+)", (place / "status").read_text())
        assert resident is not None
        return Usage((int(fields[11]) + int(fields[12])) / TICK, int(resident[1]) / 1024)

    async def _ready(self) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                status, _ = await _answer(reader)
                writer.close()
                if status == 200:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.02)

    async def report(self, name: str, faults: tuple[Finding, ...], link: list[asyncio.StreamWriter]) -> None:
        """One report over a kept connection; `link` holds it."""
        self.seq[name] += 1
        body = _report(name, self.seq[name], faults) if faults else self._again(name)
        head = f"POST /v1/nodes/{name}/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ghd_{name}\r\nContent-Length: {len(body)}\r\n\r\n"
        begun = time.monotonic()
        try:
            if not link or link[0].is_closing():
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.reader = reader  # type: ignore[attr-defined]  # kept together
                link[:] = [writer]
            link[0].write(head.encode() + body)
            status, _ = await _answer(link[0].reader)  # type: ignore[attr-defined]  # same
            word = "" if status == 200 else str(status)
        except (OSError, asyncio.IncompleteReadError) as error:
            link.clear()
            word = type(error).__name__
        if word:
            self.failed[word] = self.failed.get(word, 0) + 1
        else:
            self.took.append(time.monotonic() - begun)
            if begun >= self.joined_from:
                self.joined.append(self.took[-1])
        self.sent += 1

    def _again(self, name: str) -> bytes:
        """The node's report once more with its next number: the pretended nodes must not be what is measured."""
        if name not in self.bodies:
            self.bodies[name] = _report(name, MARK, ())
        return self.bodies[name].replace(b'"seq":%d' % MARK, b'"seq":%d' % self.seq[name], 1)

    async def steady(self, seconds: float, *, polls: bool) -> None:
        """Every node reports each interval, at a moment of its own. `joined` are answers after each has reported once."""
        self.joined_from = time.monotonic() + INTERVAL_S
        tasks = [asyncio.create_task(self._node(n, seconds)) for n in self.names]
        polling = [asyncio.create_task(self._poll(n)) for n in self.names] if polls else []
        await asyncio.gather(*tasks)
        for task in polling:
            task.cancel()
        await asyncio.gather(*polling, return_exceptions=True)

    async def _node(self, name: str, seconds: float) -> None:
        link: list[asyncio.StreamWriter] = []
        due = DICE.uniform(0, INTERVAL_S)
        begun = time.monotonic()
        while due < seconds:
            await asyncio.sleep(max(0.0, begun + due - time.monotonic()))
            await self.report(name, (), link)
            due += INTERVAL_S
        for writer in link:
            writer.close()

    async def _poll(self, name: str) -> None:
        await asyncio.sleep(DICE.uniform(0, INTERVAL_S))
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"GET /v1/nodes/{name}/orders?wait_s=30 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ghd_{name}\r\n\r\n"
        while True:
            writer.write(head.encode())
            await _answer(reader)

    async def burst(self, count: int) -> None:
        """So many nodes each report a fault at the same moment."""
        await asyncio.gather(*(self.report(name, (build_remap_finding(name),), []) for name in self.names[:count]))

    def decided(self) -> int:
        """Incidents with a decision."""
        with sqlite3.connect(self.database) as db:
            return int(db.execute("select count(distinct incident) from decisions").fetchone()[0])


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return int(head[9:12]), await reader.readexactly(int(length[1]) if length else 0)


def build_remap_finding(name: str, origin: str = "o", *, cleared_at: float | None = None) -> Finding:
    """A row that waits to be remapped."""
    component = Component(ComponentKind.GPU, f"GPU-{name}", "0000:3b:00.0", 0)
    return Finding(
        id=finding_id(name, "row_remap", "pending", component, origin),
        node=name,
        check="row_remap",
        code="pending",
        component=component,
        severity=Severity.ERROR,
        summary="a row waits to be remapped",
        first_seen=1.0,
        last_seen=1.0,
        origin=origin,
        cleared_at=cleared_at,
    )


def _report(name: str, seq: int, faults: tuple[Finding, ...]) -> bytes:
    number = int(name[4:])
    gpus = tuple(
        Gpu(g, f"GPU-{name}-{g:04}-aaaa-bbbb", f"0000:{g:02x}:00.0", "NVIDIA H100 80GB HBM3") for g in range(GPUS)
    )
    ranks = tuple(
        RankStatus(
            job=f"job-{number // 64}",
            attempt=0,
            rank=number % 64 * GPUS + g,
            world=512,
            pid=1000 + g,
            step=seq,
            phase="step",
            at=time.time(),
            step_seconds=1.2345,
            section="backward",
            step_median=1.2345,
            sections=SECTIONS,
            sections_median=SECTIONS,
            gpu=gpus[g].uuid,
            pipeline_stage=1,
            tensor_group=2,
            data_group=3,
        )
        for g in range(GPUS)
    )
    return encode_message(
        Report(
            version=1,
            node=name,
            boot_id="5f0c9f43-0000-4000-8000-000000000000",
            agent="a",
            seq=seq,
            sent_at=time.time(),
            ttl_s=30.0,
            health=Health.HEALTHY,
            changes=tuple(FindingChange(n + 1, f) for n, f in enumerate(faults)),
            active=faults,
            gpus=gpus,
            ranks=ranks,
        )
    )


def fill_history(database: Path, count: int) -> None:
    """A history of findings that are over."""
    statement = (
        "insert into findings (id, node, active, last_seen, body, kind, severity, component_kind, component, first_seen)"
        " values (?, ?, 0, ?, ?, 'row_remap/pending', 'error', 'gpu', 'g', 1)"
    )
    now = time.time() - 10 * 86400

    def rows() -> object:
        like = build_remap_finding("gpu-00000", "o", cleared_at=now)
        body, node, key = encode_message(like), like.node.encode(), like.id.encode()
        for n in range(count):
            name, own = f"gpu-{n % 12500:05}", f"{n:020x}"
            yield own, name, now, body.replace(key, own.encode()).replace(node, name.encode())

    with sqlite3.connect(database) as db:
        db.execute("PRAGMA synchronous=OFF")
        db.executemany(statement, rows())  # type: ignore[arg-type]  # an iterator of rows


def _say(name: str, value: str, budget: str = "", *, met: bool | None = None) -> None:
    """A row of the table."""
    word = "" if met is None else "met" if met else "**missed**"
    print(f"| {name} | {budget} | {value} | {word} |", flush=True)


def _quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(int(part * len(values)), len(values) - 1)] * 1000 if values else float("nan")


def main() -> None:
    """Print what was measured."""
    asks = argparse.ArgumentParser()
    asks.add_argument("--nodes", type=int, default=12_500)
    asks.add_argument("--seconds", type=float, default=40.0)
    asks.add_argument("--polls", action="store_true", help="every node also holds a poll for orders open")
    asks.add_argument("--burst", type=int, default=1000)
    asks.add_argument("--history", type=int, default=1_000_000)
    given = asks.parse_args()
    os.sched_setaffinity(0, {1})
    uvloop.install()
    gc.disable()  # this process's own pauses would be told as the remediator's
    print(f"Load average before: {os.getloadavg()[0]:.1f}\n\n| | budget | measured | |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="gh-bench-") as place:
        fleet = Fleet(Path(place), given.nodes)
        _say("start, empty", f"{fleet.start():.2f} s")
        try:
            _measure(fleet, given)
        finally:
            fleet.stop()
        if given.history:
            fill_history(fleet.database, given.history)
            size = fleet.database.stat().st_size / given.history
            took = fleet.start()
            used = fleet.usage()
            words = (
                f"{took:.2f} s by the clock, {used.cpu_s:.2f} s of processor, {used.mib:.0f} MiB; {size:.0f} bytes each"
            )
            _say(f"start with {given.history} findings that are over", words)
            fleet.stop()


def _measure(fleet: Fleet, given: argparse.Namespace) -> None:
    asyncio.run(fleet.steady(INTERVAL_S, polls=False))
    words = f"p99 {_quantile(fleet.took, 0.99):.1f} ms, {_failures(fleet)}"
    _say(f"all {given.nodes} nodes join within {INTERVAL_S:g} s", words)
    fleet.took.clear()
    fleet.joined.clear()
    before, sent, begun, mine = fleet.usage(), fleet.sent, time.monotonic(), time.process_time()
    size = fleet.database.stat().st_size
    asyncio.run(fleet.steady(given.seconds, polls=given.polls))
    after, seconds, count = fleet.usage(), time.monotonic() - begun, fleet.sent - sent
    wanted = given.nodes / INTERVAL_S
    rate, cpu, took = count / seconds, after.cpu_s - before.cpu_s, fleet.took
    words = f"{rate:.0f} reports/s of {len(_report(fleet.names[0], 1, ()))} bytes, {_failures(fleet)}"
    _say(
        f"steady, for {given.seconds:g} s",
        words,
        f"{wanted:.0f} reports/s",
        met=rate >= 0.95 * wanted and not fleet.failed,
    )
    share = cpu / seconds
    _say("processor", f"{100 * share:.0f} % of a core, {1e6 * cpu / count:.0f} µs a report", "one core", met=share < 1)
    _say("ingest, as a node sees it, with all that connect anew", _times(took))
    p99 = _quantile(fleet.joined, 0.99)
    _say("ingest, once all are connected", _times(fleet.joined), "p99 ≤ 50 ms", met=p99 <= INGEST_P99_MS)
    _say("memory", f"{after.mib:.0f} MiB", "≤ 1 GiB", met=after.mib <= MEMORY_MIB)
    _say("the pretended nodes", f"{100 * (time.process_time() - mine) / seconds:.0f} % of their core")
    _say("database, reports without news", f"{(fleet.database.stat().st_size - size) / 1024:.0f} KiB")
    _burst(fleet, given.burst)


def _times(took: list[float]) -> str:
    return f"p50 {_quantile(took, 0.5):.1f} ms, p99 {_quantile(took, 0.99):.1f} ms, max {_quantile(took, 1):.0f} ms"


def _burst(fleet: Fleet, count: int) -> None:
    size, before, begun = fleet.database.stat().st_size, fleet.usage(), time.monotonic()
    asyncio.run(fleet.burst(count))
    acknowledged = time.monotonic() - begun
    while fleet.decided() < count and time.monotonic() - begun < BURST_GIVEN_UP_S:
        time.sleep(0.05)
    done = time.monotonic() - begun
    time.sleep(1)
    grown, cpu = fleet.database.stat().st_size - size, fleet.usage().cpu_s - before.cpu_s
    words = f"acknowledged {acknowledged:.2f} s, {fleet.decided()} decided {done:.2f} s, {cpu:.2f} s of processor"
    _say(f"{count} faulty nodes at one moment", words, "≤ 5 s", met=done <= BURST_S and fleet.decided() >= count)
    each = grown / count / 1024
    day = each * FAULTS_PER_NODE_DAY * len(fleet.names) / 1024
    _say(
        "database, a faulty node",
        f"{each:.1f} KiB; with {FAULTS_PER_NODE_DAY} faults a node and day {day:.0f} MiB a day",
    )


def _failures(fleet: Fleet) -> str:
    return ", ".join(f"{count} x {word}" for word, count in sorted(fleet.failed.items())) or "none failed"


if __name__ == "__main__":
    main()
