"""How fast a kernel line becomes durable, and what floods cost.

    python bench/node_daemon.py [--lines 300]

"Durable" is when another process can read the finding from the database. Single lines go through the machine's
/dev/kmsg where it can be written; floods through a followed file, since the kernel lets few lines of a process pass.
"""

from __future__ import annotations

import argparse
import itertools
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.measured_node import Node, build_scenario, select_quantile
from bench.minimum_costs import kmsg_usable
from healthd.storage.node_database import NodeDatabase
from vocabulary.driver_log.injected_line import mark_injected_line
from vocabulary.driver_log.xid_line import format_xid
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind

STORED = (0, 10_000, 100_000)
LOOK_EVERY_S = 0.0002
WARM_UP_S = 8.0
NODE = f"bench-{time.time_ns()}"  # the kernel log remembers earlier runs
# An address of its own makes each line a new finding: a daemon finds those of every run before in the kernel's log.
_numbers = itertools.count(1)
BUDGET = "p50 ≤ 3 ms, p99 ≤ 10 ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=300)
    options = parser.parse_args()
    kmsg = kmsg_usable()
    print(f"{'kernel line → finding durable':<52} {'p50':>9} {'p99':>9} {'max':>9}   budget")
    for stored in STORED:
        with tempfile.TemporaryDirectory(prefix="bench-healthd-") as place:
            latencies = measure_lines(Path(place), stored, options.lines, kmsg=kmsg)
        figures = [
            f"{value * 1000:6.2f} ms"
            for value in (select_quantile(latencies, 0.5), select_quantile(latencies, 0.99), latencies[-1])
        ]
        print(f"{f'{stored} findings stored':<52} {' '.join(figures)}   {BUDGET}")
    print(f"\n{'floods':<52} {'lines/s':>9} {'then one more line':>20}")
    for name, lines in (
        ("20 000 Xid lines of one GPU within a second", list(repeat_fault(20_000))),
        ("3000 distinct (GPU, code) within a second", list(generate_distinct_faults(3000))),
        ("100 000 lines that concern nobody", [f"docker0: port {n} entered forwarding state" for n in range(100_000)]),
    ):
        with tempfile.TemporaryDirectory(prefix="bench-healthd-") as place:
            rate, after = measure_flood(Path(place), lines)
        print(f"{name:<52} {rate:9.0f} {after * 1000:17.2f} ms")


def repeat_fault(count: int) -> Iterator[str]:
    """One fault, over and over."""
    line = format_xid(
        119, "0000:13:00", pid=7, process="python3", detail="Timeout after 6s of waiting for RPC response"
    )
    return (line for _ in range(count))


def generate_distinct_faults(count: int) -> Iterator[str]:
    """Each of sixteen GPUs with each of many codes."""
    return (format_xid(1 + n // 16, f"0000:{0x10 + n % 16:02x}:00", detail="something") for n in range(count))


def measure_flood(place: Path, lines: list[str]) -> tuple[float, float]:
    """Lines a second until all are judged and durable, and seconds until one more line is."""
    with Node(place, NODE, build_scenario(8, costs=False)) as node:
        with sqlite3.connect(place / "state" / "healthd.db", isolation_level=None) as database:
            time.sleep(WARM_UP_S)
            before = node.metric("healthd_kernel_records_total")
            began = time.perf_counter()
            assert node.log is not None
            with node.log.open("a") as file:
                file.write("".join(f"{line}\n" for line in lines))
            while node.metric("healthd_kernel_records_total") - before < len(lines):
                time.sleep(0.01)
            rate = len(lines) / (time.perf_counter() - began)
            after = one_line(database, node.log)
        database.close()
    return rate, after


def measure_lines(place: Path, stored: int, lines: int, *, kmsg: bool) -> list[float]:
    """Seconds from writing a line until another process can read its finding, in order."""
    if stored:
        fill_database(place, stored)
    with Node(place, NODE, build_scenario(8, costs=False), kmsg=kmsg) as node:
        with sqlite3.connect(place / "state" / "healthd.db", isolation_level=None) as database:
            time.sleep(WARM_UP_S)
            found = [one_line(database, node.log) for _ in range(lines)]
        database.close()
    return sorted(found)


def one_line(database: sqlite3.Connection, log: Path | None) -> float:
    number = next(_numbers)
    pci = f"{number:04x}:3b:00.0"
    text = mark_injected_line(NODE, format_xid(79, pci, pid=1, process="bench", detail="GPU has fallen off the bus."))
    wanted = f'%"pci":"{pci}"%'
    (before,) = database.execute("select max(seq) from changes").fetchone()
    began = time.perf_counter()
    if log is None:
        with Path("/dev/kmsg").open("wb", buffering=0) as kmsg:
            kmsg.write(f"<4>{text}\n".encode())
    else:
        with log.open("a") as file:
            file.write(f"{text}\n")
    while not database.execute(
        "select 1 from changes where seq > ? and cast(body as text) like ?", (before or 0, wanted)
    ).fetchone():
        if time.perf_counter() - began > 10:
            raise SystemExit(f"line {number} never became a finding")
        time.sleep(LOOK_EVERY_S)
    took = time.perf_counter() - began
    time.sleep(0.02)
    return took


def fill_database(place: Path, count: int) -> None:
    """A history: findings long cleared, and unacknowledged changes of as many."""
    (place / "state").mkdir()
    database = NodeDatabase(place / "state" / "healthd.db", time.time())
    now = time.time()
    findings = []
    for number in range(count):
        component = Component(ComponentKind.GPU, pci=f"{number & 0xFFFF:04x}:{0x3C + (number >> 16):02x}:00.0")
        finding = Finding(
            id=finding_id(NODE, "xid", "31", component, f"old:{number}"),
            node=NODE,
            check="xid",
            code="31",
            component=component,
            severity=Severity.WARNING,
            summary="an old fault",
            first_seen=now - 86400,
            last_seen=now - 86400,
            origin=f"old:{number}",
        )
        findings.append(msgspec.structs.replace(finding, active=False, cleared_at=now - 3600, cleared_by="preflight"))
    database.commit(findings)
    database.close()


if __name__ == "__main__":
    main()
