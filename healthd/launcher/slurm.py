"""Inside an sbatch or salloc allocation: one srun step per attempt, pinned to the chosen nodes.

How each rank ended is read from srun's own messages ("srun: error: n2: tasks 1-2: Exited with exit code 90"): Slurm's
accounting keeps one code per step only, and a channel of our own would need ports that a site may not open. The step is
killed through scancel, which reaches its tasks even when srun itself is stuck.
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
from contextlib import suppress
from functools import partial
from typing import IO, Any

from healthd.launcher import voice
from healthd.launcher.backend import Announce, Answers, Attempt, BackendError, Event, Question, Run
from healthd.launcher.coming_back import Return
from healthd.launcher.plan import RankEnd
from healthd.launcher.rank import FIRST_MEMBER, LOCAL_RANKS
from healthd.launcher.slurm_queue import queue_again
from healthd.launcher.slurm_steps import SlurmSteps
from healthd.launcher.swapping import SwappingRun

COMMAND_SECONDS = 30.0
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


def task_numbers(text: str, world: int) -> list[int]:
    """The tasks of a list such as ``0-2,5``, as far as they are ranks of this world."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), min(int(last.partition("-")[0] or first) + 1, world))
    return numbers


def read_message(line: str, world: int) -> list[RankEnd]:
    """The ranks whose end a line of srun reports; none for any other line."""
    match = _TASKS.match(line.strip())
    if match is None:
        return []
    how = match["how"]
    by_code = _CODE.match(how)
    if by_code is not None:
        code = int(by_code[1])
    else:
        code = next((-number for text, number in _BY_SIGNAL.items() if how.startswith(text)), 1)
    return [RankEnd(task, match["node"], code) for task in task_numbers(match["tasks"], world)]


def read_answers(text: str, nodes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The JSON objects, one per line, that name one of these nodes; other lines are a prolog's or a library's."""
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
        """Args: `kill_one`: ends one task by its number; only needed where single ranks are replaced."""
        self._attempt = attempt
        self._job_id = job_id
        self._srun = srun
        self._step_name = step_name
        self._kill_one = kill_one
        self.rank_nodes = attempt.rank_nodes
        self._reported: dict[int, RankEnd] = {}
        self._stayed: set[int] = set()  # ranks that ran when we killed the step
        assert srun.stderr is not None  # noqa: S101 - it was asked for
        self._reader = threading.Thread(target=self._read, args=(srun.stderr,), name="srun-stderr", daemon=True)
        self._reader.start()

    def ended(self) -> Sequence[RankEnd]:
        """What srun has reported; after its end also the ranks it says nothing about."""
        reported = {rank: self._marked(end) for rank, end in self._reported.copy().items()}
        if not self.over():
            return list(reported.values())
        return [reported.get(rank) or self._silent(rank) for rank in range(self._attempt.tasks)]

    def take_events(self) -> Sequence[Event]:
        """Nothing happens but ends."""
        return ()

    def over(self) -> bool:
        """Whether srun has ended and everything it said is read."""
        return self._srun.poll() is not None and not self._reader.is_alive()

    def terminate(self) -> None:
        """SIGTERM to every task."""
        self._signal("TERM")

    def kill(self) -> None:
        """SIGKILL to every task, and to srun if no step can be found."""
        self._stayed |= set(range(self._attempt.tasks)) - set(self._reported)
        if not self._signal("KILL"):
            self._srun.kill()

    def kill_one(self, task: int) -> None:
        """SIGKILL to one task: it is on a condemned node, and did not leave by itself."""
        self._stayed.add(task)
        self._kill_one(task)

    def clear(self) -> None:
        """Nothing: Slurm ends what is left of a step, as far as its process tracking goes."""

    def _marked(self, end: RankEnd) -> RankEnd:
        """A rank with a code of its own left by itself, even if we heard of it after the kill."""
        by_signal = end.code is None or end.code < 0
        return end._replace(killed=by_signal and end.rank in self._stayed)

    def _silent(self, rank: int) -> RankEnd:
        """Slurm reports every failure: a rank nobody speaks of ended well if the step did, else its node is gone."""
        node = self._attempt.node_of(rank)
        lost = rank in self._stayed or (self._srun.returncode != 0 and not self._reported)
        return RankEnd(rank, node, None if lost else 0, killed=rank in self._stayed)

    def _signal(self, name: str) -> bool:
        steps = _run(["squeue", "--steps", "--noheader", f"--jobs={self._job_id}", "--format=%i|%j"])
        ids = [line.partition("|")[0] for line in steps.splitlines() if line.endswith(f"|{self._step_name}")]
        for step in ids:
            _run(["scancel", f"--signal={name}", step.strip()])
        return bool(ids)

    def _read(self, stream: IO[bytes]) -> None:
        """Pass srun's standard error on, and note what it says about tasks."""
        with stream:
            while line := stream.readline(STDERR_LINE_BYTES_MAX):
                voice.pass_on(line)
                for end in read_message(line.decode(errors="replace"), self._attempt.tasks):
                    self._reported.setdefault(end.rank, end)


class SlurmBackend:
    """The allocation this process runs in."""

    name = "slurm"
    attempts_before = 0

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._job_id = self._need("SLURM_JOB_ID")
        count = self._environ.get("SLURM_RESTART_COUNT", "")
        self.requeues_before = int(count) if count.isascii() and count.isdigit() else 0
        self._nodes = tuple(
            _run(["scontrol", "show", "hostnames", self._need("SLURM_JOB_NODELIST")], check=True).split()
        )

    def job(self) -> str:
        """The job's id: it stays the same when the job is requeued."""
        return self._job_id

    def nodes(self) -> tuple[str, ...]:
        """The allocation's nodes, in Slurm's order, but for those that Slurm has taken from the job since.

        With --no-kill it does so when a node dies, and then starts no step that names it, however many others it names.
        """
        listed = _run(["squeue", "--noheader", f"--jobs={self._job_id}", "--format=%N"]).strip()
        left = _run(["scontrol", "show", "hostnames", listed]).split() if listed else []
        return tuple(node for node in self._nodes if node in left) or self._nodes

    def ask(self, nodes: Sequence[str], question: Question, stopped: Callable[[], bool]) -> Answers:
        """One short step over all of them."""
        program = [sys.executable, "-m", f"healthd.launcher.{question.topic}", *question.arguments]
        argv = [*self._srun(nodes, 1), "--wait=5", "--kill-on-bad-exit=0", *program]
        return read_answers(_said(argv, self._clean(), question.seconds, stopped), nodes)

    def start(self, attempt: Attempt) -> Run:
        """One step, one task per rank, and one for each spare process."""
        try:
            if attempt.swap:
                here = self._environ.get("SLURMD_NODENAME", "")
                host = self._address(here) if here else socket.gethostname()
                return SwappingRun(attempt, lambda meeting: self._start_steps(attempt, meeting.environ), host)
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
        # Of a task that ends well srun tells us nothing. Where ranks are replaced, the end of one is no reason to end others.
        argv += ["--wait=0", "--no-kill"] if attempt.swap else [f"--wait={math.ceil(attempt.patience_seconds)}"]
        argv += ["--kill-on-bad-exit=0", sys.executable, "-m", "healthd.launcher.rank", *attempt.command]
        address, port = self._address(attempt.nodes[0]), PORT_FIRST + secrets.randbelow(PORT_COUNT)
        environ = {**self._clean(), **attempt.shared_environment(address, port), **more}
        srun = subprocess.Popen(argv, env=environ, stderr=subprocess.PIPE, start_new_session=True)
        return SlurmRun(attempt, self._job_id, srun, step_name, partial(self._kill_task, attempt, environ, first))

    def _kill_task(self, attempt: Attempt, environ: Mapping[str, str], first: int, task: int) -> None:
        """By a step on the task's node, which nobody waits for: the node may be gone."""
        program = [sys.executable, "-m", "healthd.launcher.kill_member", str(first + task)]
        with suppress(OSError):
            subprocess.Popen(
                [*self._srun((attempt.node_of(task),), 1), *program],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def requeue(self, refused: Collection[str], in_vain: int, announce: Announce) -> Return | None:
        """`scontrol requeue`: Slurm ends this job, this process included, and queues it again."""
        try:
            return queue_again(partial(_run, check=True), self._job_id, self._nodes, refused, in_vain, announce)
        except BackendError as error:
            voice.say(str(error))
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
        """Our environment without what the batch script's own shape would tell srun about ours."""
        dropped = ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES")
        return {key: value for key, value in self._environ.items() if key not in dropped}

    def _address(self, node: str) -> str:
        """Where a node is reached: Slurm knows even when the name service does not."""
        found = re.search(r"\bNodeAddr=(\S+)", _run(["scontrol", "show", "node", node]))
        return found[1] if found else node

    def _need(self, name: str) -> str:
        value = self._environ.get(name, "")
        if not value:
            raise BackendError(f"{name} is not set: run this inside sbatch or salloc, or with --backend local")
        return value


def _run(
    argv: Sequence[str],
    *,
    seconds: float = COMMAND_SECONDS,
    environ: Mapping[str, str] | None = None,
    check: bool = False,
) -> str:
    """The standard output of a Slurm command; empty when it fails, unless `check` asks for a `BackendError`."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, env=environ, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        if check:
            raise BackendError(f"{argv[0]}: {error}") from error
        return ""
    if check and done.returncode != 0:
        raise BackendError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _said(argv: Sequence[str], environ: Mapping[str, str], seconds: float, stopped: Callable[[], bool]) -> str:
    """What a step printed until its end, its deadline, or until `stopped`: some nodes may have answered by then."""
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
                srun.terminate()  # it ends the step's tasks, too
                try:
                    return srun.communicate(timeout=SRUN_END_SECONDS)[0]
                except subprocess.TimeoutExpired:
                    srun.kill()
                    return srun.communicate()[0]
