"""The judge in a process of its own, so that its work delays no request; killed and restarted when it does not answer.

`python -m remediator.monitoring.judge_process SHARD SHARDS` reads `JudgeInput`s on standard input and writes a
`JudgeOutput` for each, as MessagePack behind a length (uint32, little endian). It ends when its input does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import struct
import subprocess
import sys
import time
from typing import BinaryIO, TypeVar

import msgspec

from remediator.monitoring.job_judge import JobJudge, JudgeInput, JudgeOutput

log = logging.getLogger(__name__)
LENGTH = struct.Struct("<I")
ANSWER_S = 60.0  # a pass over 100 000 ranks takes a second or two
NICE = 5  # requests are answered first
PIPE_BYTES = 1 << 20

T = TypeVar("T")


class JudgeGoneError(Exception):
    """The process has ended or does not answer; it was killed, and what it knew is lost."""


class JudgeProcess:
    """One shard in its process."""

    def __init__(self, shard: int, shards: int) -> None:
        """Start it.

        Raises:
            OSError: no process can be started.
        """
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", __name__, str(shard), str(shards)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def step(self, told: JudgeInput) -> JudgeOutput:
        """Pass one input and return the answer.

        Raises:
            JudgeGoneError: there is none.
        """
        due = time.monotonic() + ANSWER_S
        try:
            content = msgspec.msgpack.encode(told)
            self._write(LENGTH.pack(len(content)) + content, due)
            (length,) = LENGTH.unpack(self._read(LENGTH.size, due))
            return msgspec.msgpack.decode(self._read(length, due), type=JudgeOutput)
        except (OSError, EOFError, msgspec.DecodeError) as error:
            self.close()
            raise JudgeGoneError(f"the analysis process {self.pid}: {error}") from error

    def close(self) -> None:
        """End it."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()

    def _write(self, content: bytes, due: float) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        descriptor, rest = self._process.stdin.fileno(), memoryview(content)
        os.set_blocking(descriptor, False)
        while rest:
            _wait_for([], [descriptor], due)
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(descriptor, rest[:PIPE_BYTES]) :]

    def _read(self, length: int, due: float) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        descriptor, parts = self._process.stdout.fileno(), bytearray()
        while len(parts) < length:
            _wait_for([descriptor], [], due)
            part = os.read(descriptor, min(PIPE_BYTES, length - len(parts)))
            if not part:
                raise EOFError("it has ended")
            parts += part
        return bytes(parts)


def _wait_for(readable: list[int], writable: list[int], due: float) -> None:
    poller = select.poll()  # unlike select, for any number of open files
    for descriptor in readable:
        poller.register(descriptor, select.POLLIN)
    for descriptor in writable:
        poller.register(descriptor, select.POLLOUT)
    if not poller.poll(1e3 * max(0.0, due - time.monotonic())):
        raise TimeoutError(f"no answer within {ANSWER_S:g} s")


def serve_judge(judge: JobJudge, source: BinaryIO, answers: BinaryIO) -> None:
    """Answer inputs until there are no more."""
    decoder = msgspec.msgpack.Decoder(JudgeInput)
    while head := source.read(LENGTH.size):
        content = source.read(LENGTH.unpack(head)[0])
        answer = msgspec.msgpack.encode(judge.step(decoder.decode(content)))
        answers.write(LENGTH.pack(len(answer)) + answer)
        answers.flush()


def main() -> None:
    """Run one shard until the controller ends."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    os.nice(NICE)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):  # the controller ends, and this process with it
        serve_judge(JobJudge(int(sys.argv[1]), int(sys.argv[2])), sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
