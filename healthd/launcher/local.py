"""No scheduler: the ranks are child processes on this machine. Pretend node names make it a cluster for tests and demos."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from healthd.launcher import gate, pages, preflight
from healthd.launcher.backend import Answers, Attempt, BackendError, Question
from healthd.launcher.plan import RankEnd
from healthd.launcher.rank import PARENT_VARIABLE

Answer = Callable[[str, Sequence[str], Callable[[], bool]], dict[str, Any]]
_TOPICS: dict[str, Answer] = {"gate": gate.answer, "pages": pages.answer, "preflight": preflight.answer}


class LocalRun:
    """Child processes, one per rank, each the leader of a process group."""

    def __init__(self, attempt: Attempt, environ: dict[str, str]) -> None:
        self._children: list[tuple[int, str, subprocess.Popen[bytes]]] = []
        self._killed: set[int] = set()
        argv = [sys.executable, "-m", "healthd.launcher.rank", *attempt.command]
        for rank in range(attempt.world):
            node = attempt.nodes[rank // attempt.ranks_per_node]
            own = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank % attempt.ranks_per_node),
                "HEALTHD_NODE": node,
                PARENT_VARIABLE: str(os.getpid()),
            }
            try:
                child = subprocess.Popen(argv, env={**environ, **own}, start_new_session=True)
            except OSError:
                self.kill()
                raise
            self._children.append((rank, node, child))

    def ended(self) -> Sequence[RankEnd]:
        """The ranks that have ended so far."""
        return [
            RankEnd(rank, node, child.returncode, rank in self._killed)
            for rank, node, child in self._children
            if child.poll() is not None
        ]

    def over(self) -> bool:
        """Whether every rank has ended."""
        return all(child.poll() is not None for _, _, child in self._children)

    def terminate(self) -> None:
        """SIGTERM to the ranks themselves; their workers are theirs to end."""
        for _, _, child in self._children:
            child.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to each rank's whole process group, so that no worker of an ended rank stays either."""
        for rank, _, child in self._children:
            if child.poll() is None:
                self._killed.add(rank)
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


class LocalBackend:
    """This machine, under one name or several."""

    name = "local"

    def __init__(self, node_names: Sequence[str] = ()) -> None:
        self._nodes = tuple(node_names) or (socket.gethostname(),)
        if len(set(self._nodes)) != len(self._nodes):
            raise BackendError(f"node names must differ: {', '.join(self._nodes)}")

    def job(self) -> str:
        """From HEALTHD_JOB, else this process's id."""
        return os.environ.get("HEALTHD_JOB") or f"local-{os.getpid()}"

    def nodes(self) -> tuple[str, ...]:
        """This machine, by its names."""
        return self._nodes

    def ask(self, nodes: Sequence[str], question: Question, stopped: Callable[[], bool]) -> Answers:
        """Ask all of them in this process, side by side."""
        answer = _TOPICS[question.topic]
        with ThreadPoolExecutor(max(1, len(nodes))) as threads:
            said = threads.map(lambda node: answer(node, question.arguments, stopped), nodes)
            return dict(zip(nodes, said, strict=True))

    def start(self, attempt: Attempt) -> LocalRun:
        """Start the ranks as children."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environ = {
            **os.environ,
            "HEALTHD_JOB": attempt.job,
            "HEALTHD_ATTEMPT": str(attempt.number),
            "WORLD_SIZE": str(attempt.world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        try:
            return LocalRun(attempt, environ)
        except OSError as error:
            raise BackendError(f"cannot start a rank: {error}") from error

    def requeue(self) -> bool:
        """There is no queue."""
        return False
