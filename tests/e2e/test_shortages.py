"""A real healthd whose machine gives it no further descriptor, or no further process."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from healthd_node import Node, eventually

MakeNode = Callable[..., Node]
A_USER = 61_984  # of no other test: the kernel counts all processes of a user
PROCESSES_MAX = 12
AS_A_USER = (
    "setpriv",
    f"--reuid={A_USER}",
    "--clear-groups",
    "--inh-caps=+dac_read_search",  # an interpreter in root's home, as some have
    "--ambient-caps=+dac_read_search",
)


def children(node: Node, module: str) -> list[int]:
    """Its children of that module."""
    assert node.process is not None
    lists = [(task / "children").read_text() for task in Path(f"/proc/{node.process.pid}/task").iterdir()]
    pids = [int(child) for children in lists for child in children.split()]
    return [pid for pid in pids if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]


def goes_on_and_recovers(node: Node, words: str, end_shortage: Callable[[], object]) -> None:
    """Kill its NVML child, of which none can be started anew until the shortage ends."""
    assert node.process is not None
    (child,) = children(node, "healthd.nvml.child")
    os.kill(child, signal.SIGKILL)

    finding = eventually(lambda: node.findings().get("process_start/failed"), lambda: f"{node.verdict()} {node.log()}")
    assert finding["component"]["name"] == "healthd.nvml.child"
    assert words in finding["summary"]
    node.xid(79, gpu=2)
    eventually(lambda: "xid/79@2" in node.findings(), "the kernel log is still read and judged")
    assert node.process.poll() is None
    assert children(node, "healthd.nvml.child") == []

    end_shortage()
    eventually(lambda: "process_start/failed" not in node.findings(), "the start that succeeds clears it")
    eventually(lambda: children(node, "healthd.nvml.child"), "its child is back")
    assert "Traceback" not in node.log()
    assert node.stop() == 0


def test_without_descriptors_a_start_is_postponed_and_everything_else_goes_on(
    make_node: MakeNode, tmp_path: Path
) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log")
    node.start()
    eventually(lambda: node.verdict()["health"] == "healthy", "a first sweep")
    assert node.process is not None
    pid = node.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)  # type: ignore[attr-defined]  # Linux alone has it
    in_use = max(int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir())
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (in_use + 1, before[1]))  # type: ignore[attr-defined]  # Linux alone has it
    goes_on_and_recovers(
        node,
        f"are in use ({in_use + 1}): raise LimitNOFILE=",
        lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, before),  # type: ignore[attr-defined]  # Linux alone has it
    )


@pytest.fixture
def of_a_user(nvml_library: Path) -> Iterator[Node]:
    """A node whose healthd is not root's, as the kernel counts no process of root's, and may have few processes."""
    with tempfile.TemporaryDirectory(prefix="gh-short-") as folder:
        place = Path(folder)
        library = place / "libnvidia-ml.so.1"
        library.write_bytes(nvml_library.read_bytes())
        (place / "kern.log").touch()
        home = place / "node"
        home.mkdir()
        node = Node(home, library, kernel_log=place / "kern.log")
        node.command = [*AS_A_USER, "prlimit", f"--nproc={PROCESSES_MAX}:{PROCESSES_MAX}", *node.command]
        for path in (place, *place.rglob("*")):
            os.chown(path, A_USER, -1)
        yield node
        node.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start healthd as another user")
def test_without_processes_a_start_is_postponed_and_everything_else_goes_on(of_a_user: Node) -> None:
    node = of_a_user
    node.start()
    eventually(lambda: node.verdict()["health"] == "healthy", lambda: f"{node.verdict()} {node.log()}")
    with contextlib.ExitStack() as others:
        for _ in range(PROCESSES_MAX):  # whose own limit is another
            process = others.enter_context(subprocess.Popen([*AS_A_USER, "sleep", "600"]))
            others.callback(process.kill)
        eventually(lambda: len(processes_of(A_USER)) > PROCESSES_MAX, "they are that user's")
        goes_on_and_recovers(node, f"is reached ({PROCESSES_MAX}): raise TasksMax=", others.close)


def processes_of(user: int) -> list[Path]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError):
            if place.stat().st_uid == user:
                found.append(place)
    return found
