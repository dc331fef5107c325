"""A node's self-test and software facts before it is paired, each in a process with a deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from preflight.group.group_records import SelfTestResult
from preflight.results import Evidence, Verdict

GATE = (sys.executable, "-m", "preflight", "run", "--level", "gate", "-o", "json")
FACTS = (sys.executable, "-m", "preflight.group.node_self_test")
FACTS_S = 30.0
REAP_S = 2.0
WORDS_MAX = 300


def build_gate_command(socket: str) -> tuple[str, ...]:
    """The command that tests this node alone, and reports to healthd at `socket` unless that is empty."""
    return (*GATE, "--tell", "--socket", socket) if socket else GATE


class _Document(msgspec.Struct):
    """The part of a preflight document that the group needs; of any version."""

    verdict: Verdict
    reason: str = ""
    injected: tuple[str, ...] = ()


def run_own_test(command: Sequence[str], seconds: float) -> SelfTestResult:
    """Run this node's own test. Any error makes it inconclusive, with the reason."""
    said, code, complaint = _run_with_deadline(command, seconds)
    try:
        document = msgspec.json.decode(said, type=_Document)
    except msgspec.MsgspecError:
        how = f"did not end within {seconds:g} s" if code is None else f"ended with {code} and no document"
        return SelfTestResult(verdict=Verdict.INCONCLUSIVE, reason=f"its own test {how}: {complaint}".rstrip(": "))
    if code != document.verdict.exit_code:
        reason = f"the verdict of its own test is {document.verdict.value}, but the test ended with {code}"
        return SelfTestResult(verdict=Verdict.INCONCLUSIVE, reason=reason, injected=document.injected)
    return SelfTestResult(verdict=document.verdict, reason=document.reason, injected=document.injected)


def collect_software_facts() -> Evidence | None:
    """The installed software, for comparison with other nodes; None if not available in time."""
    try:
        return msgspec.json.decode(_run_with_deadline(FACTS, FACTS_S)[0], type=Evidence)
    except msgspec.MsgspecError:
        return None


def _run_with_deadline(command: Sequence[str], seconds: float) -> tuple[bytes, int | None, str]:
    """Standard output, exit code (None: timeout) and the last line of standard error."""
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        return b"", -1, f"{command[0]} cannot be started: {error.strerror}"
    try:
        said, complaint = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=REAP_S)
        return b"", None, ""
    return said, child.returncode, complaint.decode(errors="replace").strip().rpartition("\n")[2][:WORDS_MAX]


def main() -> None:
    """Print the facts of this node's software as one JSON object."""
    from preflight.host.configuration_states import collect_comparable_facts as facts_of  # noqa: PLC0415 - only this process may hang in the driver
    from preflight.host.software_inventory import read_installed_software  # noqa: PLC0415 - only this process may hang in the driver
    from vocabulary.hardware.machine_files import Machine  # noqa: PLC0415 - only this process may hang in the driver

    sys.stdout.write(msgspec.json.encode(facts_of(read_installed_software(Machine(), lambda _: None))).decode())


if __name__ == "__main__":
    main()
