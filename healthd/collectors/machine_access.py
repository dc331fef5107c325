"""The source child's access to the machine: read files, query a file system, run a program.

Every path is below `root`, so that tests can use a folder instead of /. Light imports only: the child loads this, and
its whole memory is a sixth of the node's budget.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from vocabulary.hardware.machine_files import Machine
from vocabulary.hardware.mount_table import Mount, parse_mount_table

MOUNT_TABLES = ("/proc/1/mounts", "/proc/self/mounts")
OUTPUT_BYTES_MAX = 4 << 20
FORKED_MEMORY_BYTES = 192 << 20  # more than the process has when it forks

# One source's options in the configuration: option name → its values.
Options = Mapping[str, Sequence[str]]


class SourceAbsent(Exception):
    """The machine has no such source: a state that is shown, not a fault. The text says what was searched."""


class ClockState(NamedTuple):
    """The kernel's view of its clock, of adjtimex(2): the call's result, status bits, bounds in µs."""

    result: int
    status: int
    error_max_us: int
    error_estimated_us: int


class MachineAccess(Machine):
    """One machine, below `root`. `gpu_pids` hold a GPU, which is busy or not; `kept` is what collectors keep between readings, by name."""

    def __init__(self, root: str = "/") -> None:
        super().__init__(root)
        self.gpu_pids: Mapping[int, bool] = {}
        self.kept: dict[str, Any] = {}
        self._asking: dict[str, int] = {}  # path → the process that queries it
        self._killed: list[int] = []  # processes that have not ended yet

    def path(self, path: str) -> str:
        """Return where an absolute path of the machine really is."""
        return self._root + path

    def tail(self, path: str, limit: int) -> str | None:
        """Return the last `limit` bytes of a file, starting at a line; None if it cannot be read."""
        try:
            descriptor = os.open(self._root + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            size = os.fstat(descriptor).st_size
            data = os.pread(descriptor, limit, max(0, size - limit))
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return (data if size <= limit else data.partition(b"\n")[2]).decode(errors="replace")

    def mounts(self) -> list[Mount]:
        """Return the mount table of process 1, else our own: systemd or a container may restrict what we see.

        Raises:
            SourceAbsent: there is no table of mounts.
        """
        text = next((text for table in MOUNT_TABLES if (text := self.text(table))), None)
        if text is None:
            raise SourceAbsent(f"none of {', '.join(MOUNT_TABLES)} can be read")
        return parse_mount_table(text)

    def space(self, path: str) -> os.statvfs_result | None:
        """Return a file system's size and room.

        May block as long as the file system does (the child has a deadline).
        """
        try:
            return os.statvfs(self._root + path)
        except OSError:
            return None

    def answers(self, paths: Sequence[str], deadline_s: float) -> dict[str, str]:
        """Return each file system's state: path → "" if it answers, the error's name, or "no answer" after the deadline.

        A separate process queries each and may hang: at most one per path is left behind.
        """
        for path in paths:
            if path not in self._asking and (process := os.fork()):
                self._asking[path] = process
            elif path not in self._asking:
                _stat_and_exit(self._root + path)
        answers: dict[str, str] = {}
        until = time.monotonic() + deadline_s
        while len(answers) < len(paths):
            for path in paths:
                if path not in answers and (word := self._answer(path)) is not None:
                    answers[path] = word
            if time.monotonic() >= until:
                return {path: answers.get(path, "no answer") for path in paths}
            time.sleep(0.002)
        return answers

    def _answer(self, path: str) -> str | None:
        ended, status = os.waitpid(self._asking[path], os.WNOHANG)
        if not ended:
            return None
        del self._asking[path]
        code = os.waitstatus_to_exitcode(status)
        return errno.errorcode.get(code, f"error {code}") if code else ""

    def run_forked(self, task: Callable[[], bytes], deadline_s: float) -> bytes | None:
        """Return what `task` returns in a process of its own; None if it fails, or is killed at the deadline.

        Its memory is limited, and gone when it ends. What it changes of its process stays there.
        """
        self._killed = [pid for pid in self._killed if not os.waitpid(pid, os.WNOHANG)[0]]
        if self._killed:
            return None  # one that cannot be killed is enough
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reading)
            _run_and_exit(task, writing, deadline_s)
        os.close(writing)
        try:
            output = _read_until(reading, time.monotonic() + deadline_s)
        finally:
            os.close(reading)
            os.kill(pid, signal.SIGKILL)
        for _ in range(100):  # SIGKILL usually takes microseconds
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return output if output and status in (0, signal.SIGKILL) else None
            time.sleep(0.001)
        self._killed.append(pid)
        return None

    def timex(self) -> ClockState:
        """Return how good the kernel's time is. Changes nothing.

        Raises:
            SourceAbsent: this is a folder, and has no clock of its own.
        """
        if self._root:
            raise SourceAbsent("no clock below a folder")
        words = (ctypes.c_long * 26)()  # struct timex has 208 bytes where long has eight; word 0, modes = 0, only reads
        result = ctypes.CDLL(None).adjtimex(words)
        # modes, offset, freq, maxerror, esterror, status (an int, padded) …
        return ClockState(result, words[5] & 0xFFFFFFFF, words[3], words[4])

    def http_page(self, address: str, path: str, deadline_s: float) -> str | None:
        """Return a page of a local program at HOST:PORT; None if there is no valid answer.

        Uses HTTP/1.0 directly, whose answer simply ends: the library's client would cost the child 3 MiB.
        """
        import socket  # noqa: PLC0415 - half a megabyte that most machines never need

        host, _, port = address.rpartition(":")
        answer = bytearray()
        try:
            with socket.create_connection((host, int(port)), deadline_s) as connection:
                connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
                while len(answer) < OUTPUT_BYTES_MAX and (data := connection.recv(1 << 16)):
                    answer += data
        except (OSError, ValueError):
            return None
        head, _, body = answer.partition(b"\r\n\r\n")
        return body.decode(errors="replace") if head.split()[1:2] == [b"200"] else None

    def run(self, command: Sequence[str], deadline_s: float) -> tuple[int, str]:
        """Run a program to its end; return exit code (-1 if killed at the deadline) and standard output.

        Raises:
            SourceAbsent: there is no such program.
        """
        import subprocess  # noqa: PLC0415 - a megabyte that most machines never need

        try:
            program = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except FileNotFoundError:
            raise SourceAbsent(f"no program {command[0]} on PATH") from None
        except OSError as error:
            raise SourceAbsent(f"{command[0]}: {error.strerror}") from None
        try:
            output, _ = program.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            program.kill()
            return -1, ""  # not waited for: a process blocked in the kernel cannot be ended, and would block this one
        return program.returncode, output[:OUTPUT_BYTES_MAX].decode(errors="replace")


def _stat_and_exit(path: str) -> NoReturn:
    """End this process with the errno as its exit code, 0 for none; it must not continue as a second child."""
    code = 255
    try:
        os.statvfs(path)
        code = 0
    except OSError as error:
        code = error.errno or code
    finally:
        os._exit(code)


def _run_and_exit(task: Callable[[], bytes], descriptor: int, deadline_s: float) -> NoReturn:
    """Write the task's result, a byte that ends it, and exit; the alarm ends a process whose parent is gone."""
    import resource  # noqa: PLC0415 - only here

    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, deadline_s + 1)
        with open("/proc/self/statm") as statm:  # noqa: PTH123 - pathlib would cost this process half a megabyte
            size = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + FORKED_MEMORY_BYTES,) * 2)
        output = memoryview(task() + _END)
        while output:
            output = output[os.write(descriptor, output) :]
        code = 0
    finally:
        os._exit(code)


def _read_until(descriptor: int, until: float) -> bytes | None:
    """Return what is written before the end mark; None without it, or at `until`."""
    output = bytearray()
    while (left_s := until - time.monotonic()) > 0 and len(output) <= OUTPUT_BYTES_MAX:
        if select.select([descriptor], [], [], left_s)[0]:
            data = os.read(descriptor, 1 << 16)
            output += data
            if output.endswith(_END):
                return bytes(output[: -len(_END)])
            if not data:
                return None
    return None


_END = b"\0"
