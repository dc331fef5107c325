"""How long the pages about incidents, jobs and work take: 12 500 nodes, one job with 100 000 ranks, a long audit log.

Usage: bench/web_work_pages.py [--nodes N] [--times N] [--lines N] [--stay]

As bench/web_pages.py, with which it shares the fleet. Every rank tells its newest windows of steps; one node is slow; the faults
of a hundred nodes wait for approval. With --stay it goes on serving and says where.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import requests
from msgspec.structs import replace

from bench.page_timing import PAUSE_S, Look, print_page_times, time_page
from bench.remediator_load import GPUS
from bench.web_pages import Looked, build_page_options, logged_in, measure_idle_load, serve_fleet
from remediator.model.journal_records import AuditEvent
from remediator.store import audit_log
from remediator.store.journal import Journal
from vocabulary.messages.wire import RankStatus, Report, StepWindow, decode_message, encode_message

JOB = "llama-405b"
STAGES, WINDOWS, WINDOW_STEPS = 16, 8, 8
LINES_AT_ONCE = 10_000
DECIDED_S = 60.0
SETTLES_S = 2.0
JOB_PAUSE_S = 3.05  # a job's page shares what it knows for longer


class Working(Looked):
    """A fleet on which one job runs everywhere."""

    def __init__(self, place: Path, nodes: int, lines: int) -> None:
        super().__init__(place, nodes)
        self.config.write_text(self.config.read_text().replace("mode: recommend", "mode: approve"))
        self.begun = time.time()
        journal = Journal(f"sqlite:///{self.database}")
        for start in range(0, lines, LINES_AT_ONCE):
            with journal.engine.begin() as db:
                audit_log.append_audit_events(
                    db, [self._line(n) for n in range(start, min(lines, start + LINES_AT_ONCE))], 1
                )
        journal.close()

    def _line(self, n: int) -> AuditEvent:
        kind = ("node_state", "decision", "action")[n % 3]
        node = self.names[n % len(self.names)]
        return AuditEvent(at=self.begun - 1e6 + n, kind=kind, text=f"{node}: something happened", node=node)

    def _again(self, name: str) -> bytes:
        if name not in self.bodies:
            super()._again(name)
            report = decode_message(self.bodies[name], Report)
            ranks = () if name in self.broken else self._ranks(name)  # faults in one job would be the job's
            self.bodies[name] = encode_message(replace(report, ranks=ranks))
        return super()._again(name)

    def _ranks(self, name: str) -> tuple[RankStatus, ...]:
        number, count = int(name[4:]), len(self.names)
        own = 0.9 + 0.001 * (number % 7) + (0.3 if number == count // 3 else 0.0)
        return tuple(
            RankStatus(
                job=JOB,
                attempt=0,
                rank=number * GPUS + g,
                world=count * GPUS,
                pid=1000 + g,
                step=4096,
                phase="step",
                at=self.begun,
                step_seconds=1.25,
                section="backward",
                step_median=1.25,
                sections_median={"data": 0.01, "communication": 1.25 - own},
                gpu=f"GPU-{name}-{g:04}-aaaa-bbbb",
                pipeline_stage=number * STAGES // count,
                tensor_group=number,
                data_group=g,
                windows=tuple(
                    StepWindow(
                        4032 + n * WINDOW_STEPS,
                        WINDOW_STEPS,
                        WINDOW_STEPS,
                        1.25 + 0.01 * (n % 3),
                        None,
                        None,
                        1.25 - own,
                    )
                    for n in range(WINDOWS)
                ),
            )
            for g in range(GPUS)
        )


def list_work_pages(fleet: Working, incident: str) -> list[str]:
    """What is measured."""
    return [
        "/incidents",
        "/incidents?state=closed",
        f"/incidents/{incident}",
        f"/incidents/{incident}/actions/approve",
        "/work",
        "/work?state=all",
        "/jobs",
        f"/jobs/{JOB}",
        "/stragglers",
        "/lemons",
        "/alerts",
        "/audit",
        "/audit?kind=there-is-none",
        f"/audit?node={fleet.names[5]}",
        "/control",
    ]


def measure_work_pages(fleet: Working, times: int) -> bool:
    """Print the table. Returns whether every page keeps to the budget."""
    with logged_in(fleet) as (person, url):
        found = list_pending_approvals(fleet, url)
        incident = str(found[0]["incident"])
        print(f"{len(found)} wait for approval")
        rest = measure_idle_load(fleet)

        def seen(path: str) -> Look:
            pause_s = JOB_PAUSE_S if JOB in path else PAUSE_S
            return time_page(person, url, path, times, lambda: fleet.usage().cpu_s, pause_s, rest)

        return print_page_times(
            seen(path)._replace(path=path.replace(incident, "ID")) for path in list_work_pages(fleet, incident)
        )


def list_pending_approvals(fleet: Working, url: str) -> list[dict[str, object]]:
    """What waits for approval, once a third of what is broken does."""
    known, deadline = {"Authorization": f"Bearer {fleet.token}"}, time.monotonic() + DECIDED_S
    while True:
        found: list[dict[str, object]] = requests.get(f"{url}/v1/awaiting", headers=known, timeout=30).json()[
            "awaiting"
        ]
        if len(found) >= len(fleet.broken) // 3 or (found and time.monotonic() > deadline):
            return found
        if time.monotonic() > deadline:
            raise OSError("nothing waits for approval")
        time.sleep(0.5)


def main() -> int:
    """Run it."""
    parser = build_page_options(__doc__, times=10)
    parser.add_argument("--lines", type=int, default=300_000)
    asked = parser.parse_args()
    return serve_fleet(
        lambda place: Working(place, asked.nodes, asked.lines),
        lambda _: time.sleep(SETTLES_S),
        measure_work_pages,
        asked,
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        print(f"not on this machine: {error}")
        sys.exit(3)
