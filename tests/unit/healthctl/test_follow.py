from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path

import msgspec

from remediator.model.views import EventList, EventView

PAUSES = {3: 503, 5: 429}  # the answer's number, and what it is instead


class Growing(BaseHTTPRequestHandler):
    """An audit log with one new event in each answer; now and then it is away, or asked too often."""

    answered = count(1)

    def do_GET(self) -> None:
        number = next(self.answered)
        after = int(self.path.partition("after=")[2].partition("&")[0])
        body = msgspec.json.encode(
            EventList((EventView(after + 1, 0.0, "k", "a", "t"),) if "wait_s" in self.path else ())
        )
        self.send_response(PAUSES.get(number, 200))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_follow_outlasts_an_outage_misses_nothing_and_leaves_quietly(
    serve: Callable[..., str], token_file: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "healthctl.main",
        "events",
        "--after",
        "0",
        "--follow",
        "-o",
        "json",
        "--server",
        serve(Growing),
    ]
    with subprocess.Popen(
        [*command, "--token-file", str(token_file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"NO_PROXY": "*"},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            seqs = [json.loads(process.stdout.readline())["seq"] for _ in range(4)]
            assert seqs == [1, 2, 3, 4]
            process.send_signal(signal.SIGINT)
            assert "503" in process.stderr.readline()
            assert "429" in process.stderr.readline()
            assert process.wait(30) == 0
        finally:
            process.kill()
