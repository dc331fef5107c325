"""How long `healthctl status` takes from start to end with a real controller and a whole fleet behind it, and how often it asks.

    python -m bench.healthctl_status [--nodes N] [--incidents 0,30,600] [--runs N] [--tree CHECKOUT]

The controller is a process of its own, on the first core, with SQLite. All nodes have reported; so many of them an error each. `--tree`
measures the healthctl of another checkout against the same controller. Processor time of the command is what to compare between days.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import requests

from bench.healthctl_start import installed_environment, time_command
from bench.remediator_load import DICE, build_remap_finding
from bench.web_pages import Looked
from remediator.model.views import StatusView
from vocabulary.messages.wire import decode_message

HERE = Path(__file__).parent.parent
DECIDED_WITHIN_S = 180.0
PROBLEM = 1  # how the command ends where something is broken


class Counted(BaseHTTPRequestHandler):
    """Hands every question on, and counts them."""

    centre = ""
    asked = 0

    def do_GET(self) -> None:
        """Ask the controller the same."""
        Counted.asked += 1
        answer = requests.get(
            Counted.centre + self.path, headers={"Authorization": self.headers["Authorization"]}, timeout=60
        )
        self.send_response(answer.status_code)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


def count_requests(command: list[str], env: dict[str, str]) -> int:
    """How often one run asks."""
    Counted.centre, Counted.asked = env["HEALTHCTL_SERVER"], 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Counted) as door:
        threading.Thread(target=door.serve_forever, daemon=True).start()
        there = env | {"HEALTHCTL_SERVER": f"http://127.0.0.1:{door.server_port}"}
        subprocess.run(command, env=there, stdout=subprocess.DEVNULL, check=False)
        door.shutdown()
    return Counted.asked


def wait_for_incidents(fleet: Looked, incidents: int) -> None:
    """Wait until so many incidents are open."""
    deadline = time.monotonic() + DECIDED_WITHIN_S
    found = -1
    while time.monotonic() < deadline:
        answer = requests.get(
            f"http://127.0.0.1:{fleet.port}/v1/status", headers={"Authorization": f"Bearer {fleet.token}"}, timeout=60
        )
        if (found := decode_message(answer.content, StatusView).incidents_open) >= incidents:
            return
        time.sleep(1)
    raise TimeoutError(f"{found} incidents are open, {incidents} wanted")


def measure_status(fleet: Looked, incidents: int, runs: int, trees: list[Path], place: Path) -> None:
    """One row of the table for each checkout and form; runs of all take turns, so that what else the machine does meets all alike."""
    token = place / "token"
    token.write_text(fleet.token)
    token.chmod(0o600)
    forms = ("table", "wide", "json")
    env = installed_environment() | {
        "HEALTHCTL_SERVER": f"http://127.0.0.1:{fleet.port}",
        "HEALTHCTL_TOKEN_FILE": str(token),
    }
    took: dict[tuple[Path, str], list[tuple[float, float]]] = {(tree, form): [] for tree in trees for form in forms}
    for _ in range(runs + 1):
        for (tree, form), found in took.items():
            command = [sys.executable, "-P", "-m", "healthctl", "status", "-o", form]
            found.append(time_command(command, env | {"PYTHONPATH": str(tree)}, PROBLEM if incidents else 0))
    for (tree, form), found in took.items():
        command = [sys.executable, "-P", "-m", "healthctl", "status", "-o", form]
        asked = count_requests(command, env | {"PYTHONPATH": str(tree)})
        figures = []
        clock, processor = zip(*found[1:], strict=True)
        for each in (processor, clock):
            ms = sorted(1000 * seconds for seconds in each)
            figures.append(f"{statistics.median(ms):.0f} ({ms[0]:.0f}) | {statistics.quantiles(ms, n=20)[18]:.0f}")
        print(f"| {tree.name} | {incidents} | {form} | {asked} | {' | '.join(figures)} |", flush=True)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=12_500)
    parser.add_argument("--incidents", default="0,30,600")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--tree", type=Path, action="append", default=[])
    asked = parser.parse_args()
    DICE.seed(time.time_ns())  # another port than a run beside this one
    print(f"{asked.nodes} nodes, {asked.runs} runs each; ms, median (least) | p95; load {os.getloadavg()[0]:.1f}")
    print(
        "| healthctl of | open | form | questions | processor | p95 | clock | p95 |\n|---|--:|---|--:|--:|--:|--:|--:|"
    )
    for incidents in map(int, asked.incidents.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            fleet = Looked(place, asked.nodes)
            every = max(1, asked.nodes // max(1, incidents))
            fleet.broken = {name: (build_remap_finding(name),) for name in fleet.names[::every][:incidents]}
            fleet.start()
            try:
                time.sleep(1)  # until it has read who the nodes are
                asyncio.run(fleet.all_report())
                wait_for_incidents(fleet, incidents)
                measure_status(fleet, incidents, asked.runs, [HERE, *asked.tree], place)
            finally:
                fleet.stop()
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
