"""No scheduler: the ranks are child processes on this machine.

Simulated node names make it a cluster for tests and demos.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from healthd.launcher import gate, preflight, rank_pages, stderr_writer
from healthd.launcher.decisions.relaunch_policy import RankEnd
from healthd.launcher.process_descendants import DescendantTracker, reap_orphans
from healthd.launcher.process_groups.elastic_run import ElasticRun
from healthd.launcher.process_groups.rendezvous_server import RendezvousServer
from healthd.launcher.rank import PARENT_VARIABLE
from healthd.launcher.scheduler_backend import Announce, Answers, Attempt, AttemptRun, BackendError, Event, NodeQuestion
from healthd.trainer.rendezvous_client import MEMBER
from vocabulary.text.plurals import format_count

Answer = Callable[[str, Sequence[str], Callable[[], bool]], dict[str, Any]]
_TOPICS: dict[str, Answer] = {
    "gate": gate.answer_health_question,
    "rank_pages": rank_pages.answer_page_question,
    "preflight": preflight.answer_preflight_question,
}


class LocalRun:
    """Child processes, one per rank, each the leader of a session."""

    condemned: Collection[str] = ()  # no rank is replaced

    def __init__(
        self,
        attempt: Attempt,
        environ: dict[str, str],
        *,
        first_rank: int = 0,
        rendezvous: RendezvousServer | None = None,
    ) -> None:
        self._children: list[tuple[int, str, subprocess.Popen[bytes]]] = []
        self._killed: set[int] = set()
        self._offspring = DescendantTracker()
        self.rank_nodes = attempt.rank_nodes
        self._argv = [sys.executable, "-m", "healthd.launcher.rank", *attempt.command]
        self._environ, self._first_rank, self._rendezvous = environ, first_rank, rendezvous
        for rank in range(attempt.tasks):
            try:
                self._start(rank, attempt.node_of(rank), rank % attempt.tasks_per_node)
            except OSError:
                self.kill()
                raise

    def start_more(self, node: str, first: int, local_ranks: Sequence[int]) -> None:
        """Processes beside those of the beginning. Raises OSError."""
        for at, local_rank in enumerate(local_ranks):
            self._start(first + at, node, local_rank)

    def _start(self, rank: int, node: str, local_rank: int) -> None:
        own = {
            "RANK": str(self._first_rank + rank),
            "LOCAL_RANK": str(local_rank),
            "HEALTHD_NODE": node,
            PARENT_VARIABLE: str(os.getpid()),
            **({MEMBER: str(rank), **self._rendezvous.environ} if self._rendezvous else {}),
        }
        environ = {**self._environ, **own, **self._offspring.environ}
        child = subprocess.Popen(self._argv, env=environ, start_new_session=True)
        self._offspring.add(child.pid)
        self._children.append((rank, node, child))

    def ended(self) -> Sequence[RankEnd]:
        """Return the ranks that have ended so far."""
        ends = [
            RankEnd(rank, node, child.returncode, rank in self._killed)
            for rank, node, child in self._children
            if child.poll() is not None
        ]
        reap_orphans(self._numbers())
        return ends

    def over(self) -> bool:
        """Return whether every rank has ended."""
        return len(self.ended()) == len(self._children)

    def terminate(self) -> None:
        """Send SIGTERM to the ranks themselves; they end their workers."""
        for _, _, child in self._children:
            child.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to each rank and all its descendants."""
        self._killed |= {rank for rank, _, child in self._children if child.poll() is None}
        self._offspring.end(self._numbers())

    def kill_one(self, task: int) -> None:
        """Send SIGKILL to one process and its session."""
        for number, _, child in self._children:
            if number == task and child.poll() is None:
                self._killed.add(task)
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)

    def take_events(self) -> Sequence[Event]:
        """Return nothing: ranks only end."""
        return ()

    def clear(self) -> None:
        """End descendants that have outlived the ranks."""
        left = self._offspring.end(self._numbers())
        if left:
            stderr_writer.write_launcher_line(f"ended {format_count(left, 'process', 'processes')} left by the ranks")

    def _numbers(self) -> set[int]:
        return {child.pid for _, _, child in self._children}


class LocalBackend:
    """This machine, under one name or several."""

    name = "local"
    attempts_before = requeues_before = 0
    resizable = False

    def __init__(self, node_names: Sequence[str] = ()) -> None:
        self._nodes = tuple(node_names) or (socket.gethostname(),)
        if len(set(self._nodes)) != len(self._nodes):
            raise BackendError(f"node names must differ: {', '.join(self._nodes)}")

    def job(self) -> str:
        """From HEALTHD_JOB, else this process's id."""
        return os.environ.get("HEALTHD_JOB") or f"local-{os.getpid()}"

    def nodes(self) -> tuple[str, ...]:
        """This machine's names."""
        return self._nodes

    def ask(self, nodes: Sequence[str], question: NodeQuestion, stopped: Callable[[], bool]) -> Answers:
        """Query all of them in this process, concurrently."""
        answer = _TOPICS[question.topic]
        with ThreadPoolExecutor(max(1, len(nodes))) as threads:
            said = threads.map(lambda node: answer(node, question.arguments, stopped), nodes)
            return dict(zip(nodes, said, strict=True))

    def start(self, attempt: Attempt) -> AttemptRun:
        """Start the ranks as children."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environ = {**os.environ, **attempt.shared_environment("127.0.0.1", port)}
        try:
            if attempt.swap:
                return ElasticRun(attempt, lambda meeting: LocalRun(attempt, environ, rendezvous=meeting))
            return LocalRun(attempt, environ)
        except OSError as error:
            raise BackendError(f"cannot start a rank: {error}") from error

    def guard_host(self, _events: Path | None) -> AbstractContextManager[None]:
        """Do nothing: the ranks end with the launcher."""
        return nullcontext()

    def release(self, node: str) -> None:
        """Raise BackendError: there is no scheduler."""
        raise BackendError(f"{node}: there is no scheduler to give it back to")

    def request_node(self, _stopped: Callable[[], bool]) -> str | None:
        """Return None: there is no scheduler."""

    def requeue(self, _refused: Collection[str], _in_vain: int, _announce: Announce) -> None:
        """Return None: there is no queue."""
