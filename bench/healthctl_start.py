"""How long commands take from their start to their end, against a controller that answers at once, and what a big fleet's list costs.

The controller is a thread here that sends views made once; so what is measured is healthctl: Python, imports, one request, decoding, drawing.
Processor time is what to compare between machines and days: the clock's time depends on what else runs.
"""

from __future__ import annotations

import os
import pty
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from remediator.model.views import NodeList, NodeView
from remediator.model.views_overview import OverviewView, ReportFreshness

RUNS = 15
FLEET = 12_500
AT = 1_700_000_000.0
HEALTHCTL = Path(sys.executable).parent / "healthctl"


def build_node_view(number: int) -> NodeView:
    return NodeView(f"gpu-{number:05d}", "healthy", "healthy", AT, "first report", AT, jobs=("llama-70b",))


OVERVIEW = OverviewView(
    cluster="bench", version="0", mode="act", epoch=1, policy="p", at=AT, nodes_total=FLEET, nodes_by_state={},
    nodes_by_health={}, isolated=0, isolated_max=250, incidents_open=0, actions_open=0, scheduler="ok", heard=ReportFreshness(FLEET, FLEET, 0, AT),
)  # fmt: skip
ANSWERS = {
    "/v1/overview?incidents=3": msgspec.json.encode(OVERVIEW),
    "/v1/nodes": msgspec.json.encode(NodeList(tuple(map(build_node_view, range(FLEET))))),
    "/v1/nodes?limit=20": msgspec.json.encode(NodeList(tuple(map(build_node_view, range(20))))),
}
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("version",),
    ("--help",),
    ("xid", "explain", "79"),
    ("status",),
    ("nodes", "--limit", "20"),
    ("nodes",),
    ("nodes", "-o", "json"),
    ("nodes", "-o", "yaml"),
)


class Centre(BaseHTTPRequestHandler):
    """What a controller would say, without the thinking."""

    def do_GET(self) -> None:
        """Any of `ANSWERS`."""
        body = ANSWERS[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


def time_command(command: list[str], env: dict[str, str], code: int = 0) -> tuple[float, float]:
    """Seconds by the clock, and of the processor; the command must end with `code`."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == code, command
    return time.perf_counter() - started, used.ru_utime + used.ru_stime


def installed_environment() -> dict[str, str]:
    """This environment, but healthctl may keep its compiled modules, as an installed one does; so run it once before."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def on_a_terminal(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """The same where standard output is a terminal."""
    ours, theirs = pty.openpty()
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        try:
            while select.select([ours], [], [], 60)[0] and os.read(ours, 65536):
                pass
        except OSError:  # the last writer has closed it
            pass
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    os.close(ours)
    assert process.returncode == 0, command
    return time.perf_counter() - started, used.ru_utime + used.ru_stime


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Centre)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as place:
        token = Path(place) / "token"
        token.write_text("t\n")
        token.chmod(0o600)
        env = installed_environment() | {
            "HEALTHCTL_SERVER": f"http://127.0.0.1:{server.server_port}", "HEALTHCTL_TOKEN_FILE": str(token),
            "NO_PROXY": "*", "TERM": "xterm-256color", "COLUMNS": "120",
        }  # fmt: skip
        print(f"{RUNS} runs each, ms: processor median (least), clock median (least); nodes: {FLEET} unless limited")
        for way, run in (("pipe", time_command), ("terminal", on_a_terminal)):
            for command in COMMANDS:
                found = [run([str(HEALTHCTL), *command], env) for _ in range(RUNS + 1)][1:]
                clock, processor = ([1e3 * times[index] for times in found] for index in (0, 1))
                figures = "  ".join(f"{statistics.median(ms):6.0f} ({min(ms):4.0f})" for ms in (processor, clock))
                print(f"{way:<9} {' '.join(command):<20} {figures}", flush=True)
    server.shutdown()


if __name__ == "__main__":
    main()
