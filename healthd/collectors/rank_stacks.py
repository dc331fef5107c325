"""Reads where local ranks are: from torch's worker server, else by py-spy where it is installed, else from /proc.

Takes at most `ASK_S` and `PY_SPY_S`, however many ranks there are and whatever they do. Called in threads of their own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from healthd.collectors.stack_sockets import RankProcess, StackQuestion, ask_processes, drain_descriptors
from healthd.collectors.stack_text import parse_kernel_stack, parse_open_calls, parse_py_spy, parse_traceback
from vocabulary.messages.evidence_bundle import RankStack
from vocabulary.stacks.stack_places import classify_stack

if TYPE_CHECKING:
    import subprocess

ASK_S, PY_SPY_S = 1.5, 3.0
RANKS_MAX, PY_SPY_MAX = 64, 16  # ranks asked at a time
TRACEBACK = "dump_traceback"
CALLS = ("dump_nccl_trace_json?onlyactive=true", "fr_trace_json")  # of NCCL, and of gloo
_PROGRAM_PLACES = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin"])


class LocalRank(NamedTuple):
    """A living rank of this node, and its process."""

    job: str
    attempt: int
    rank: int
    process: RankProcess


class _Found(NamedTuple):
    source: str
    frames: tuple[str, ...]
    calls: str = ""


def read_rank_stacks(
    directory: str, ranks: Sequence[LocalRank], at: float, with_calls: Collection[RankProcess] = ()
) -> tuple[RankStack, ...]:
    """Return the stacks of these ranks, read now; those of whom nothing can be read are left out.

    Args:
        directory: of the beacon pages.
        ranks: at most `RANKS_MAX` of them are read.
        at: the time, UTC seconds.
        with_calls: whom to ask for their open collectives, too: it may keep a thread of theirs if a GPU hangs.
    """
    asked = ranks[:RANKS_MAX]
    found = _ask_torch(directory, {rank.process for rank in asked}, with_calls)
    found |= _run_py_spy([rank.process for rank in asked if rank.process not in found])
    found |= {
        rank.process: _Found("proc", frames)
        for rank in asked
        if rank.process not in found and (frames := _read_kernel_stack(rank.process.pid))
    }
    return tuple(_make_stack(rank, found[rank.process], at) for rank in asked if rank.process in found)


def _make_stack(rank: LocalRank, found: _Found, at: float) -> RankStack:
    return RankStack(
        job=rank.job,
        attempt=rank.attempt,
        rank=rank.rank,
        pid=rank.process.pid,
        at=at,
        source=found.source,
        frames=found.frames,
        place=classify_stack(found.frames).value,
        calls=found.calls,
    )


def _ask_torch(
    directory: str, processes: Collection[RankProcess], with_calls: Collection[RankProcess]
) -> dict[RankProcess, _Found]:
    questions = [StackQuestion(process, TRACEBACK) for process in processes]
    questions += [
        StackQuestion(process, handler) for process in processes if process in with_calls for handler in CALLS
    ]
    answers = ask_processes(directory, questions, ASK_S)
    found: dict[RankProcess, _Found] = {}
    for process in processes:
        text = answers.get(StackQuestion(process, TRACEBACK), b"").decode(errors="replace")
        if frames := parse_traceback(text):
            calls = (parse_open_calls(answers.get(StackQuestion(process, handler), b"")) for handler in CALLS)
            found[process] = _Found("torch", frames, next(filter(None, calls), ""))
    return found


def _run_py_spy(processes: Sequence[RankProcess]) -> dict[RankProcess, _Found]:
    """Return the stacks of processes that torch's server gave no answer for, where py-spy is installed."""
    import shutil  # noqa: PLC0415 - as in `_start_program`

    program = shutil.which("py-spy", path=_PROGRAM_PLACES) if processes else None
    if program is None:
        return {}
    running: dict[StackQuestion, subprocess.Popen[bytes]] = {}
    try:
        for process in processes[:PY_SPY_MAX]:
            with contextlib.suppress(OSError):
                command = [program, "dump", "--nonblocking", "--json", "--pid", str(process.pid)]
                running[StackQuestion(process, "py-spy")] = _start_program(command)
        pipes = {question: each.stdout.fileno() for question, each in running.items() if each.stdout}
        whole = drain_descriptors(pipes, time.monotonic() + PY_SPY_S)
    finally:
        for each in running.values():
            each.kill()
            with each:  # closes the pipe and waits
                pass
    texts = {question.process: content.decode(errors="replace") for question, content in whole.items()}
    stacks = {process: parse_py_spy(text, process.pid) for process, text in texts.items()}
    return {process: _Found("py-spy", frames) for process, frames in stacks.items() if frames}


def _start_program(command: list[str]) -> subprocess.Popen[bytes]:
    import subprocess  # noqa: PLC0415 - a megabyte that most machines never need

    environ = {"PATH": "/usr/bin:/bin"}
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    started = subprocess.Popen(command, stdin=null, stdout=pipe, stderr=null, env=environ)
    if started.stdout is not None:
        os.set_blocking(started.stdout.fileno(), False)
    return started


def _read_kernel_stack(pid: int) -> tuple[str, ...]:
    stack, stat, wchan = (_read_proc_file(pid, name) for name in ("stack", "stat", "wchan"))
    return parse_kernel_stack(stack, stat.rpartition(")")[2].strip()[:1], wchan.strip())


def _read_proc_file(pid: int, name: str) -> str:
    try:
        with Path(f"/proc/{pid}/{name}").open("rb") as file:
            return file.read(8192).decode(errors="replace")
    except OSError:
        return ""
