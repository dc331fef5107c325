"""Runs in an sbatch or salloc allocation: one srun step per attempt, pinned to the chosen nodes.

How each rank ended is parsed from srun's messages ("srun: error: n2: tasks 1-2: Exited with exit code 90"): Slurm's
accounting keeps one code per step only, and a separate channel would need ports that a site may not open. scancel kills
the step, because it reaches the tasks even when srun itself is stuck.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from healthd.launcher import stderr_writer
from healthd.launcher.backends.batch_host_guard import BatchHostGuard
from healthd.launcher.backends.slurm_command import run_slurm_command
from healthd.launcher.backends.slurm_requeue import requeue_job
from healthd.launcher.backends.slurm_resize import release_node, request_node
from healthd.launcher.backends.slurm_steps import SlurmSteps
from healthd.launcher.decisions.relaunch_policy import RankEnd
from healthd.launcher.decisions.requeue_policy import RequeueDecision, parse_job_fields
from healthd.launcher.process_groups.elastic_run import ElasticRun
from healthd.launcher.rank import FIRST_MEMBER, LOCAL_RANKS
from healthd.launcher.scheduler_backend import Announce, Answers, Attempt, AttemptRun, BackendError, Event, NodeQuestion

STOP_POLL_SECONDS = 0.2
SRUN_END_SECONDS = 10.0
PORT_FIRST, PORT_COUNT = 20000, 10000
STDERR_LINE_BYTES_MAX = 1 << 16

_TASKS = re.compile(r"srun: error: (?P<node>[^:\s]+): tasks? (?P<tasks>\d{1,8}(?:[-,]\d{1,8})*): (?P<how>.+)")
_CODE = re.compile(r"Exited with exit code (\d+)")
_BY_SIGNAL = {
    "Killed": signal.SIGKILL,
    "Terminated": signal.SIGTERM,
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE,
    "Hangup": signal.SIGHUP,
    "Interrupt": signal.SIGINT,
}


def parse_task_numbers(text: str, world: int) -> list[int]:
    """Return the tasks of a list such as ``0-2,5`` that are ranks of this world."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), min(int(last.partition("-")[0] or first) + 1, world))
    return numbers


def parse_srun_message(line: str, world: int) -> list[RankEnd]:
    """Return the ranks whose end a line of srun reports; none for any other line."""
    match = _TASKS.match(line.strip())
    if match is None:
        return []
    how = match["how"]
    by_code = _CODE.match(how)
    if by_code is not None:
        code = int(by_code[1])
    else:
        code = next((-number for text, number in _BY_SIGNAL.items() if how.startswith(text)), 1)
    return [RankEnd(task, match["node"], code) for task in parse_task_numbers(match["tasks"], world)]


def parse_node_answers(text: str, nodes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the JSON lines that name one of these nodes; other lines are a prolog's or a library's."""
    answers = {}
    for line in text.splitlines():
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(answer, dict) and answer.get("node") in nodes:
            answers[answer["node"]] = answer
    return answers


class SlurmRun:
    """One step."""

    condemned: Collection[str] = ()  # no rank is replaced

    def __init__(
        self,
        attempt: Attempt,
        job_id: str,
        srun: subprocess.Popen[bytes],
        step_name: str,
        kill_one: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Args: `kill_one`: kills one task by its number; only needed where single ranks are replaced."""
        self._attempt = attempt
        self._job_id = job_id
        self._srun = srun
        self._step_name = step_name
        self._kill_one = kill_one
        self.rank_nodes = attempt.rank_nodes
        self._reported: dict[int, RankEnd] = {}
        self._stayed: set[int] = set()  # ranks that still ran when the step was killed
        assert srun.stderr is not None  # noqa: S101 - it was asked for
        self._reader = threading.Thread(target=self._read, args=(srun.stderr,), name="srun-stderr", daemon=True)
        self._reader.start()

    def ended(self) -> Sequence[RankEnd]:
        """Return what srun has reported; after its end also the ranks it did not mention."""
        reported = {rank: self._marked(end) for rank, end in self._reported.copy().items()}
        if not self.over():
            return list(reported.values())
        return [reported.get(rank) or self._silent(rank) for rank in range(self._attempt.tasks)]

    def take_events(self) -> Sequence[Event]:
        """Return nothing: ranks only end."""
        return ()

    def over(self) -> bool:
        """Return whether srun has ended and all its output is read."""
        return self._srun.poll() is not None and not self._reader.is_alive()

    def terminate(self) -> None:
        """Send SIGTERM to every task."""
        self._signal("TERM")

    def kill(self) -> None:
        """Send SIGKILL to every task, and to srun if no step can be found."""
        self._stayed |= set(range(self._attempt.tasks)) - set(self._reported)
        if not self._signal("KILL"):
            self._srun.kill()

    def kill_one(self, task: int) -> None:
        """Send SIGKILL to one task that is on a condemned node and did not leave by itself."""
        self._stayed.add(task)
        self._kill_one(task)

    def clear(self) -> None:
        """Do nothing: Slurm ends a step's leftovers, as far as its process tracking goes."""

    def _marked(self, end: RankEnd) -> RankEnd:
        """Return the end as killed unless the rank has an exit code of its own, even one read after the kill."""
        by_signal = end.code is None or end.code < 0
        return end._replace(killed=by_signal and end.rank in self._stayed)

    def _silent(self, rank: int) -> RankEnd:
        """Return the end of a rank without a report: success if the step succeeded, else its node is lost."""
        node = self._attempt.node_of(rank)
        lost = rank in self._stayed or (self._srun.returncode != 0 and not self._reported)
        return RankEnd(rank, node, None if lost else 0, killed=rank in self._stayed)

    def _signal(self, name: str) -> bool:
        steps = run_slurm_command(["squeue", "--steps", "--noheader", f"--jobs={self._job_id}", "--format=%i|%j"])
        ids = [line.partition("|")[0] for line in steps.splitlines() if line.endswith(f"|{self._step_name}")]
        for step in ids:
            run_slurm_command(["scancel", f"--signal={name}", step.strip()])
        return bool(ids)

    def _read(self, stream: IO[bytes]) -> None:
        """Forward srun's standard error, and record what it reports about tasks."""
        with stream:
            while line := stream.readline(STDERR_LINE_BYTES_MAX):
                stderr_writer.forward_stderr(line)
                for end in parse_srun_message(line.decode(errors="replace"), self._attempt.tasks):
                    self._reported.setdefault(end.rank, end)


class SlurmBackend:
    """The allocation this process runs in."""

    name = "slurm"
    attempts_before = 0
    resizable = True

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._job_id = self._need("SLURM_JOB_ID")
        count = self._environ.get("SLURM_RESTART_COUNT", "")
        self.requeues_before = int(count) if count.isascii() and count.isdigit() else 0
        self._nodes = tuple(
            run_slurm_command(["scontrol", "show", "hostnames", self._need("SLURM_JOB_NODELIST")], check=True).split()
        )

    def job(self) -> str:
        """The job's id: it stays the same when the job is requeued."""
        return self._job_id

    def nodes(self) -> tuple[str, ...]:
        """The allocation's nodes in Slurm's order, without those that Slurm has since removed from the job, then those added.

        With --no-kill it removes a node that dies, and then starts no step that names it.
        """
        listed = run_slurm_command(["squeue", "--noheader", f"--jobs={self._job_id}", "--format=%N"]).strip()
        left = run_slurm_command(["scontrol", "show", "hostnames", listed]).split() if listed else []
        added = [node for node in left if node not in self._nodes]
        return (*(node for node in self._nodes if node in left), *added) or self._nodes

    def ask(self, nodes: Sequence[str], question: NodeQuestion, stopped: Callable[[], bool]) -> Answers:
        """Run one short step over all of them."""
        program = [sys.executable, "-m", f"healthd.launcher.{question.topic}", *question.arguments]
        argv = [*self._srun(nodes, 1), "--wait=5", "--kill-on-bad-exit=0", *program]
        return parse_node_answers(_collect_step_output(argv, self._clean(), question.seconds, stopped), nodes)

    def start(self, attempt: Attempt) -> AttemptRun:
        """Start one step, with one task per rank and one per spare."""
        try:
            if attempt.swap:
                here = self._environ.get("SLURMD_NODENAME", "")
                host = self._address(here) if here else socket.gethostname()
                return ElasticRun(attempt, lambda meeting: self._start_steps(attempt, meeting.environ), host)
            return self._start(attempt, {})
        except OSError as error:
            raise BackendError(f"srun cannot be started: {error}") from error

    def _start_steps(self, attempt: Attempt, more: Mapping[str, str]) -> SlurmSteps:
        def start_more(node: str, first: int, local_ranks: Sequence[int]) -> SlurmRun:
            step = attempt._replace(nodes=(node,), spares=(), ranks_per_node=len(local_ranks))
            placed = {FIRST_MEMBER: str(first), LOCAL_RANKS: ",".join(map(str, local_ranks))}
            whole = attempt.shared_environment(self._address(node), PORT_FIRST)
            return self._start(step, {**whole, **more, **placed}, first)

        return SlurmSteps(self._start(attempt, more), start_more)

    def _start(self, attempt: Attempt, more: Mapping[str, str], first: int = 0) -> SlurmRun:
        step_name = f"healthd-{attempt.number}-{secrets.token_hex(3)}"
        argv = [*self._srun((*attempt.nodes, *attempt.spares), attempt.tasks_per_node), f"--job-name={step_name}"]
        # srun does not report a task that ends well. Where ranks are replaced, one rank's end must not end the others.
        argv += ["--wait=0", "--no-kill"] if attempt.swap else [f"--wait={math.ceil(attempt.patience_seconds)}"]
        argv += ["--kill-on-bad-exit=0", sys.executable, "-m", "healthd.launcher.rank", *attempt.command]
        address, port = self._address(attempt.nodes[0]), PORT_FIRST + secrets.randbelow(PORT_COUNT)
        environ = {**self._clean(), **attempt.shared_environment(address, port), **more}
        srun = subprocess.Popen(argv, env=environ, stderr=subprocess.PIPE, start_new_session=True)
        return SlurmRun(attempt, self._job_id, srun, step_name, partial(self._kill_task, attempt, environ, first))

    def _kill_task(self, attempt: Attempt, environ: Mapping[str, str], first: int, task: int) -> None:
        """By a step on the task's node, without waiting for it: the node may be lost."""
        program = [sys.executable, "-m", "healthd.launcher.process_groups.member_termination", str(first + task)]
        with suppress(OSError):
            subprocess.Popen(
                [*self._srun((attempt.node_of(task),), 1), *program],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def guard_host(self, events: Path | None) -> AbstractContextManager[None]:
        """Have the job requeued if this node is lost. Slurm itself does that unless the job has --no-kill."""
        shown = run_slurm_command(["scontrol", "-o", "show", "job", self._job_id])
        here = parse_job_fields(shown).get("BatchHost")
        if "BatchFlag=1" not in shown.split() or here is None:
            return nullcontext()  # of salloc: only a batch job can be requeued

        def start(node: str, port: int) -> subprocess.Popen[bytes]:
            program = [sys.executable, "-m", "healthd.launcher.backends.batch_host_watcher"]
            place = [self._address(here), str(port), self._job_id, *([str(events.absolute())] if events else [])]
            argv = [*self._srun((node,), 1), "--job-name=healthd-batch-host", "--gres=none", "--wait=0", "--no-kill"]
            return subprocess.Popen(
                [*argv, *program, *place],
                env=self._clean(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

        return BatchHostGuard(start, lambda: [node for node in self.nodes() if node != here])

    def release(self, node: str) -> None:
        """Take a node out of the allocation, while the job goes on."""
        with TemporaryDirectory() as folder:
            ask = partial(run_slurm_command, check=True, folder=folder)
            release_node(ask, self._job_id, node, self.nodes(), self._environ.get("SLURMD_NODENAME", ""))

    def request_node(self, stopped: Callable[[], bool]) -> str | None:
        """Wait in the queue for one more node of the allocation."""
        with TemporaryDirectory() as folder:
            ask = partial(run_slurm_command, check=True, folder=folder)
            return request_node(ask, self._job_id, self._environ, stopped)

    def requeue(self, refused: Collection[str], in_vain: int, announce: Announce) -> RequeueDecision | None:
        """Run `scontrol requeue`: Slurm ends this job, including this process, and queues it again."""
        try:
            return requeue_job(
                partial(run_slurm_command, check=True), self._job_id, self._nodes, refused, in_vain, announce
            )
        except BackendError as error:
            stderr_writer.write_launcher_line(str(error))
            return None

    def _srun(self, nodes: Sequence[str], tasks_per_node: int) -> list[str]:
        return [
            "srun",
            f"--jobid={self._job_id}",
            "--overlap",
            "--mem=0",
            f"--nodes={len(nodes)}",
            f"--nodelist={','.join(nodes)}",
            f"--ntasks={len(nodes) * tasks_per_node}",
            f"--ntasks-per-node={tasks_per_node}",
            "--distribution=block",
        ]

    def _clean(self) -> dict[str, str]:
        """Return the environment without the batch script's own shape, which srun would apply to this step."""
        dropped = ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES")
        return {key: value for key, value in self._environ.items() if key not in dropped}

    def _address(self, node: str) -> str:
        """Return a node's address: Slurm knows it even when the name service does not."""
        found = re.search(r"\bNodeAddr=(\S+)", run_slurm_command(["scontrol", "show", "node", node]))
        return found[1] if found else node

    def _need(self, name: str) -> str:
        value = self._environ.get(name, "")
        if not value:
            raise BackendError(f"{name} is not set: run this inside sbatch or salloc, or with --backend local")
        return value


def _collect_step_output(
    argv: Sequence[str], environ: Mapping[str, str], seconds: float, stopped: Callable[[], bool]
) -> str:
    """Return a step's output until its end, its deadline, or `stopped`: some nodes may have answered by then."""
    try:
        srun = subprocess.Popen(
            argv, env=environ, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return ""
    give_up_at = time.monotonic() + seconds
    while True:
        try:
            return srun.communicate(timeout=STOP_POLL_SECONDS)[0]
        except subprocess.TimeoutExpired:
            if stopped() or time.monotonic() >= give_up_at:
                srun.terminate()  # it also ends the step's tasks
                try:
                    return srun.communicate(timeout=SRUN_END_SECONDS)[0]
                except subprocess.TimeoutExpired:
                    srun.kill()
                    return srun.communicate()[0]
