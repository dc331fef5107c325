"""Tests one node: runs the preflight as a child, with a deadline, and reads its result document.

Runs on every node of the allocation before ranks start there (`python -m healthd.launcher.preflight SECONDS
COMMAND...`). Only a document that says fail condemns a node; any other problem is 'unknown', with the reason.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from healthd.launcher.decisions.relaunch_policy import Fitness, NodeVerdict

LEVELS = ("gate", "standard")
POLL_SECONDS = 0.2
COMPLAINT_CHARACTERS = 300
REAP_SECONDS = 2.0  # for a killed child: one in a driver call may never exit
_SAYS = {"pass": (Fitness.FIT, 0), "fail": (Fitness.UNFIT, 1)}


def make_preflight_command(level: str) -> tuple[str, ...]:
    """Return this product's preflight command for a level."""
    return (sys.executable, "-m", "preflight", "run", "--level", level, "-o", "json")


def parse_preflight_verdict(node: str, said: bytes, code: int, complained: bytes = b"") -> NodeVerdict:
    """Return the node's verdict from document and exit code; they must agree, else it is unknown.

    Args:
        node: its name.
        said: the document, JSON.
        code: the preflight's exit code.
        complained: its error output; the last line explains a missing document.
    """
    try:
        document: Any = json.loads(said)
        word = document["verdict"]
        reason = str(document.get("reason") or "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        last = complained.decode(errors="replace").strip().rpartition("\n")[2][:COMPLAINT_CHARACTERS]
        why = f"the preflight ended with {code} and printed nothing readable"
        return NodeVerdict(node, Fitness.UNKNOWN, f"{why}: {last}" if last else why)
    fitness, expected = _SAYS.get(word, (Fitness.UNKNOWN, code)) if isinstance(word, str) else (Fitness.UNKNOWN, code)
    if code != expected:
        return NodeVerdict(node, Fitness.UNKNOWN, f"the preflight says {word} but ended with {code}")
    return NodeVerdict(node, fitness, reason or ("" if fitness is Fitness.FIT else f"preflight: {word}"))


def run_preflight(node: str, command: Sequence[str], seconds: float, stopped: Callable[[], bool]) -> NodeVerdict:
    """Run the preflight here, until its end, its deadline, or `stopped`."""
    environ = {**os.environ, "HEALTHD_NODE": node}
    try:
        child = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return NodeVerdict(node, Fitness.UNKNOWN, f"the preflight cannot be started: {error}")
    give_up_at = time.monotonic() + seconds
    while True:
        try:
            said, complained = child.communicate(timeout=POLL_SECONDS)
            return parse_preflight_verdict(node, said, child.returncode, complained)
        except subprocess.TimeoutExpired:
            if stopped() or time.monotonic() >= give_up_at:
                _kill_preflight(child)
                return NodeVerdict(node, Fitness.UNKNOWN, f"the preflight did not end within {seconds:g} s")


def answer_preflight_question(node: str, arguments: Sequence[str], stopped: Callable[[], bool]) -> dict[str, Any]:
    """Return the verdict as a node sends it; `arguments` are the seconds and the command."""
    return run_preflight(node, arguments[1:], float(arguments[0]), stopped)._asdict()


def _kill_preflight(child: subprocess.Popen[bytes]) -> None:
    os.killpg(child.pid, signal.SIGKILL)
    try:
        child.communicate(timeout=REAP_SECONDS)
    except subprocess.TimeoutExpired:
        for pipe in filter(None, (child.stdout, child.stderr)):
            pipe.close()


def main() -> None:
    """Print this node's verdict as one line of JSON."""
    node = os.environ.get("HEALTHD_NODE") or os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    sys.stdout.write(json.dumps(answer_preflight_question(node, sys.argv[1:], lambda: False)) + "\n")


if __name__ == "__main__":
    main()
