"""What the node daemon costs, and how fast a kernel line becomes durable.

    python bench/node_daemon.py [--lines 300] [--seconds 30]

Real processes: healthd, its NVML child on the fake driver library (eight GPUs, 1 Hz), the machine's /dev/kmsg where it
can be written, else a followed file. "Durable" is when another process can read the finding from the database.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from healthd.outbox import Outbox
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind
from vocabulary.injection import mark
from vocabulary.xid import format_xid

ROOT = Path(__file__).parents[1]
STORED = 10_000
LOOK_EVERY_S = 0.0002
WARM_UP_S = 5.0
NODE = f"bench-{time.time_ns()}"  # the kernel log remembers earlier runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    print(f"{'what':<52} {'p50':>9} {'p99':>9} {'max':>9}   budget")
    for stored in (0, STORED):
        with tempfile.TemporaryDirectory(prefix="bench-healthd-") as place:
            latencies = measure_lines(Path(place), stored, options.lines)
        figures = [f"{value * 1000:6.2f} ms" for value in (at(latencies, 0.5), at(latencies, 0.99), latencies[-1])]
        label = f"kernel line → finding durable, {stored} findings stored"
        print(f"{label:<52} {' '.join(figures)}   p50 ≤ 3 ms, p99 ≤ 10 ms")
    with tempfile.TemporaryDirectory(prefix="bench-healthd-") as place:
        measure_rest(Path(place), options.seconds)


def at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def start(place: Path) -> tuple[subprocess.Popen[bytes], Path | None]:
    """A healthd with its own directories; the followed file, or None if it reads the machine's kernel log."""
    log = None if os.access("/dev/kmsg", os.R_OK | os.W_OK) else place / "kern.log"
    config = {
        "node": NODE,
        "state_dir": str(place / "state"),
        "run_dir": str(place / "run"),
        "beacon_dir": str(place / "beacons"),
        "listen": "127.0.0.1:0",
        "accept_injected": True,
        "kernel_log": {"path": str(log)} if log else {},
        "nvml": {"library": str(fake_library(place))},
        "remediator": {"url": "http://127.0.0.1:9", "token_file": str(place / "token")},  # nobody answers there
    }
    (place / "healthd.yaml").write_text(json.dumps(config))
    (place / "scenario").write_text("gpus 8\n")
    (place / "token").write_text("none\n")
    command = [sys.executable, "-m", "healthd.main", "--config", str(place / "healthd.yaml")]
    environment = os.environ | {"FAKE_NVML_SCENARIO": str(place / "scenario")}
    with (place / "log").open("wb") as output:
        process = subprocess.Popen(command, env=environment, stderr=output)
    deadline = time.monotonic() + 30
    while not (place / "run" / "healthd.sock").exists():
        if time.monotonic() > deadline or process.poll() is not None:
            raise SystemExit(f"healthd does not start:\n{(place / 'log').read_text()}")
        time.sleep(0.05)
    return process, log


def fake_library(place: Path) -> Path:
    spec = importlib.util.spec_from_file_location("build", ROOT / "tests" / "nodes" / "fake_nvml" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    return Path(builder.build(place))


def measure_lines(place: Path, stored: int, lines: int) -> list[float]:
    """Seconds from writing a line until another process can read its finding, in order."""
    if stored:
        fill(place, stored)
    process, log = start(place)
    try:
        with sqlite3.connect(place / "state" / "healthd.db", isolation_level=None) as database:
            time.sleep(WARM_UP_S)
            found = [one_line(database, log, number + 2 * stored) for number in range(lines)]
        database.close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    return sorted(found)


def one_line(database: sqlite3.Connection, log: Path | None, number: int) -> float:
    pci = f"{number + 1:04x}:3b:00.0"  # an address of its own makes each line, in every run, a new finding
    text = mark(NODE, format_xid(79, pci, pid=1, process="bench", detail="GPU has fallen off the bus."))
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


def fill(place: Path, count: int) -> None:
    """A history: findings long cleared, and unacknowledged changes of as many."""
    (place / "state").mkdir()
    outbox = Outbox(place / "state" / "healthd.db", time.time())
    now = time.time()
    findings = []
    for number in range(count):
        component = Component(ComponentKind.GPU, pci=f"{number:04x}:3c:00.0")
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
    outbox.commit(findings)
    outbox.close()


def measure_rest(place: Path, seconds: float) -> None:
    """CPU and memory at 1 Hz over eight GPUs, with nothing going on."""
    process, _ = start(place)
    try:
        time.sleep(WARM_UP_S)
        pids = [process.pid, *children(process.pid)]
        began, used = time.monotonic(), [cpu_seconds(pid) for pid in pids]
        time.sleep(seconds)
        passed = time.monotonic() - began
        shares = [(cpu_seconds(pid) - before) / passed * 100 for pid, before in zip(pids, used, strict=True)]
        memory = [resident_mib(pid) for pid in pids]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    print(f"\nat rest, 8 GPUs at 1 Hz, over {passed:.0f} s" + f"{'daemon':>14} {'NVML child':>12} {'both':>9}   budget")
    print(f"{'CPU, % of one core':<38} {shares[0]:9.2f} {shares[1]:12.2f} {sum(shares):9.2f}   ≤ 0.5")
    print(f"{'resident memory, MiB':<38} {memory[0]:9.1f} {memory[1]:12.1f} {sum(memory):9.1f}   ≤ 64")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_seconds(pid: int) -> float:
    """User and system time, to the nanosecond that the scheduler counts."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
