"""How long a page takes with a whole fleet behind it, from the request's first byte to the answer's last.

Usage: bench/web_pages.py [--nodes N] [--times N] [--stay]

The remediator has the first core for itself. 12 500 pretended nodes have reported, a hundred of them a fault; jobs run on all.
"Processor" is the remediator's processor time for each page, without what it uses while nobody looks: on a machine that others use
as well, the figure to go by. Between two requests lies a pause, so that nothing is answered from what was just worked out.
With --stay it goes on serving and says where, for a look at the pages with a browser; the nodes then go on reporting.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import requests

from bench.page_timing import BUDGET_MS, print_page_times, time_page
from bench.remediator_load import DICE, GPUS, MARK, Fleet, _report, build_remap_finding
from remediator.model.credentials import Role
from remediator.store.journal import Journal
from remediator.store.token_store import Tokens
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.telemetry_messages import BUCKET_S, GPU_SERIES, TelemetryBlock, TelemetryPart, bucket_of
from vocabulary.messages.wire import Report, decode_message, encode_message

BROKEN = 100
RACK, SWITCH = 8, 64
AT_ONCE = 64
IDLE_S = 10.0
SETTLES_S = 20.0  # a fleet that has just come is judged first


F = TypeVar("F", bound="Looked")


class Looked(Fleet):
    """A fleet whose pages are looked at. Its nodes promise to be silent for an hour, so that nobody need repeat them."""

    def __init__(self, place: Path, nodes: int) -> None:
        super().__init__(place, nodes)
        lines = [
            f"  gpu-[{n:05}-{min(n + RACK, nodes) - 1:05}]: {{rack: r{n // RACK:04}, switch: leaf{n // SWITCH:03}, "
            f"partitions: [{'train' if n < nodes * 3 // 4 else 'research'}]}}"
            for n in range(0, nodes, RACK)
        ]
        topology = place / "topology.yaml"
        topology.write_text("nodes:\n" + "\n".join(lines) + "\n")
        with self.config.open("a") as config:
            config.write(
                f"cluster: helios\ntopology: {topology}\nlimits: {{person_per_s: 1000, person_burst: 10000}}\n"
            )
        self.broken = {name: _faults(n, name) for n, name in enumerate(self.names[:: max(1, nodes // BROKEN)])}
        journal = Journal(f"sqlite:///{self.database}")
        self.token = Tokens(journal.engine).issue(Role.OPERATOR, "ann", time.time())
        journal.close()

    def _again(self, name: str) -> bytes:
        if name not in self.bodies:
            faults = self.broken.get(name, ())
            report = decode_message(_report(name, MARK, faults), Report)
            worst = max((f.severity for f in faults), key=lambda s: s.rank, default=Severity.INFO)
            health = {Severity.INFO: Health.HEALTHY, Severity.WARNING: Health.DEGRADED}.get(worst, Health.UNHEALTHY)
            report = msgspec.structs.replace(report, ttl_s=3600.0, health=health, sent_at=time.time())
            self.bodies[name] = encode_message(report)
        return super()._again(name)

    async def all_report(self) -> None:
        """Every node once."""
        links: list[list[asyncio.StreamWriter]] = [[] for _ in range(AT_ONCE)]
        for start in range(0, len(self.names), AT_ONCE):
            names = self.names[start : start + AT_ONCE]
            await asyncio.gather(*(self.report(name, (), links[n]) for n, name in enumerate(names)))

    def tell_telemetry(self, name: str) -> None:
        """An hour of curves of one node, as healthd sends them on a wish."""
        report = decode_message(self._again(name), Report)
        headers = {"Authorization": f"Bearer {self.token}"}
        requests.get(f"http://127.0.0.1:{self.port}/v1/nodes/{name}/telemetry", headers=headers, timeout=10)
        self.seq[name] += 1
        body = msgspec.structs.replace(
            report, seq=self.seq[name] + 1, telemetry=msgspec.Raw(encode_message(build_telemetry_curves()))
        )
        url = f"http://127.0.0.1:{self.port}/v1/nodes/{name}/report"
        requests.post(
            url, encode_message(body), headers={"Authorization": f"Bearer ghd_{name}"}, timeout=10
        ).raise_for_status()


def build_telemetry_curves() -> TelemetryPart:
    """Eight GPUs, each reading with a shape of its own."""
    now = time.monotonic() + 7200
    last = bucket_of(now)
    blocks = tuple(
        TelemetryBlock(
            f"0000:{gpu:02x}:00.0",
            last - 119,
            {
                name: tuple(round(20 + 30 * place + 3 * gpu + (t * (gpu + 3) % 17), 1) for t in range(120))
                for place, name in enumerate(GPU_SERIES)
            },
        )
        for gpu in range(GPUS)
    )
    return TelemetryPart(now, blocks, BUCKET_S)


def _faults(n: int, name: str) -> tuple[Finding, ...]:
    if n % 3 == 0:
        return (build_remap_finding(name),)
    component = Component(ComponentKind.GPU, f"GPU-{name}-0003-aaaa-bbbb", "0000:03:00.0", 3)
    code, severity, summary = (
        ("79", Severity.FATAL, "Xid 79: GPU has fallen off the bus")
        if n % 3 == 1
        else ("63", Severity.WARNING, "Xid 63: a row was marked for remapping")
    )
    found = finding_id(name, "xid", code, component, "o")
    now = time.time()
    return (
        Finding(
            id=found,
            node=name,
            check="xid",
            code=code,
            component=component,
            severity=severity,
            summary=summary,
            first_seen=now - 900,
            last_seen=now - 60,
            origin="o",
            count=n % 7 + 1,
        ),
    )


def list_measured_pages(fleet: Looked) -> list[str]:
    """What is measured."""
    broken = next(iter(fleet.broken))
    return [
        "/",
        "/?by=switch&colour=health",
        "/?by=none&broken=1",
        "/fleet.json?by=rack",
        "/nodes",
        "/nodes?broken=1",
        f"/nodes/{broken}",
        f"/nodes/{broken}/actions/hold",
        "/search?q=gpu-0123",
    ]


def measure_web_pages(fleet: Looked, times: int) -> bool:
    """Print the table. Returns whether every page keeps to the budget."""
    with logged_in(fleet) as (person, url):
        rest = measure_idle_load(fleet)
        return print_page_times(
            time_page(person, url, path, times, lambda: fleet.usage().cpu_s, idle_per_s=rest)
            for path in list_measured_pages(fleet)
        )


def measure_idle_load(fleet: Looked) -> float:
    """Processor seconds a second while nobody looks."""
    before = fleet.usage().cpu_s
    time.sleep(IDLE_S)
    return (fleet.usage().cpu_s - before) / IDLE_S


def main() -> int:
    """Run it."""
    parser = build_page_options(__doc__, times=20)
    asked = parser.parse_args()

    def settle(fleet: Looked) -> None:
        time.sleep(SETTLES_S)
        fleet.tell_telemetry(next(iter(fleet.broken)))

    return serve_fleet(lambda place: Looked(place, asked.nodes), settle, measure_web_pages, asked)


def build_page_options(words: str | None, times: int) -> argparse.ArgumentParser:
    """What both benches of pages can be asked."""
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=12_500)
    parser.add_argument("--times", type=int, default=times)
    parser.add_argument("--stay", action="store_true")
    return parser


def serve_fleet(
    build: Callable[[Path], F],
    settle: Callable[[F], None],
    measure: Callable[[F, int], bool],
    asked: argparse.Namespace,
) -> int:
    """Have a fleet report, measure its pages, and go on serving them if that is wished for; the exit code."""
    DICE.seed(time.time_ns())  # another port than a run beside this one
    with tempfile.TemporaryDirectory() as folder:
        fleet = build(Path(folder))
        fleet.start()
        time.sleep(1)  # until it has read who the nodes are
        try:
            asyncio.run(fleet.all_report())
            if fleet.failed:
                print(f"reports that failed: {fleet.failed}")
            settle(fleet)
            kept = measure(fleet, asked.times) if asked.times else True
            if asked.stay:
                print(f"http://127.0.0.1:{fleet.port}/ with the token {fleet.token}", flush=True)
                while fleet.process is not None and fleet.process.poll() is None:
                    time.sleep(1)
        except KeyboardInterrupt:
            return 0
        finally:
            fleet.stop()
    print("every page keeps to the budget" if kept else f"OVER BUDGET: more than {BUDGET_MS:g} ms")
    return 0 if kept else 1


@contextmanager
def logged_in(fleet: Looked) -> Iterator[tuple[requests.Session, str]]:
    """A person's session, and where it is."""
    url = f"http://127.0.0.1:{fleet.port}"
    with requests.Session() as person:
        login = person.post(f"{url}/login", {"token": fleet.token, "next": "/"}, headers={"Origin": url}, timeout=30)
        login.raise_for_status()
        yield person, url


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (subprocess.SubprocessError, OSError) as error:
        print(f"not on this machine: {error}")
        sys.exit(3)
