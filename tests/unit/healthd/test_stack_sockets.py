"""Asking trainers where they are: no trainer, hung or hostile, blocks healthd or answers for another."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from healthd.collectors.stack_sockets import ANSWER_BYTES_MAX, RankProcess, StackQuestion, ask_processes
from healthd.trainer.beacons.page_reader import process_start
from healthd.trainer.beacons.stack_socket import stack_socket_name

ME = RankProcess(os.getpid(), os.geteuid())
QUESTION = StackQuestion(ME, "dump_traceback")
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")
GOOD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhere"
Serve = Callable[[Callable[[socket.socket], None]], Path]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serve this process's socket with a function of each connection."""
    with ExitStack() as stack:

        def start(behave: Callable[[socket.socket], None]) -> Path:
            path = tmp_path / stack_socket_name(ME.pid, process_start(ME.pid) or 0)
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(str(path))
            server.listen()

            def run() -> None:
                with suppress(OSError):
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(4096)
                        behave(connection)

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            stack.callback(thread.join, 10)
            stack.callback(server.shutdown, socket.SHUT_RDWR)
            return path

        yield start


def ask(directory: Path, seconds: float = 0.3) -> dict[StackQuestion, bytes]:
    return ask_processes(str(directory), [QUESTION], seconds)


def test_an_answer_arrives_whole_also_in_parts(serve: Serve, tmp_path: Path) -> None:
    def answer(connection: socket.socket) -> None:
        for byte in GOOD:
            connection.sendall(bytes([byte]))

    serve(answer)
    assert ask(tmp_path, 20) == {QUESTION: b"here"}


def drip(connection: socket.socket) -> None:
    connection.sendall(GOOD)
    with suppress(OSError):
        while True:
            connection.sendall(b".")
            time.sleep(0.01)


def flood(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.sendall(GOOD + bytes(10 << 20))


def say_nothing(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.recv(1)  # until the other side hangs up


@pytest.mark.parametrize("behave", [drip, flood, say_nothing])
def test_who_never_ends_has_no_answer(serve: Serve, tmp_path: Path, behave: Callable[[socket.socket], None]) -> None:
    serve(behave)
    assert ask(tmp_path) == {}


@pytest.mark.parametrize(
    "answer", [b"", os.urandom(4096), GOOD[4:], GOOD.replace(b"200 OK", b"500 Oh"), GOOD.replace(b"\r\n\r\n", b"\n")]
)
def test_garbage_is_no_answer(serve: Serve, tmp_path: Path, answer: bytes) -> None:
    serve(lambda connection: connection.sendall(answer))
    assert ask(tmp_path, 20) == {}


def test_an_answer_may_be_as_long_as_the_limit(serve: Serve, tmp_path: Path) -> None:
    body = b"x" * (ANSWER_BYTES_MAX - len(GOOD))
    serve(lambda connection: connection.sendall(GOOD + body))
    assert ask(tmp_path, 20) == {QUESTION: b"here" + body}


def test_a_server_that_does_not_accept_has_no_answer(serve: Serve, tmp_path: Path) -> None:
    path = serve(say_nothing)
    with ExitStack() as stack:
        for _ in range(200):  # until nobody else can connect
            client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            with suppress(BlockingIOError):
                client.connect(str(path))
        assert ask(tmp_path) == {}


def test_a_link_is_not_followed(serve: Serve, tmp_path: Path) -> None:
    path = serve(lambda connection: connection.sendall(GOOD))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert ask(tmp_path) == {}


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo, Path.mkdir])
def test_other_files_are_not_opened(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / stack_socket_name(ME.pid, process_start(ME.pid) or 0))
    assert ask(tmp_path) == {}


@NEEDS_ROOT
def test_another_users_socket_is_not_asked(serve: Serve, tmp_path: Path) -> None:
    path = serve(lambda connection: connection.sendall(GOOD))
    os.chown(path, 1001, 1001)
    assert ask(tmp_path) == {}
    other = StackQuestion(RankProcess(ME.pid, 1001), "dump_traceback")
    assert ask_processes(str(tmp_path), [other], 0.3) == {}  # the file is right, but root listens


def test_a_process_does_not_answer_for_another(tmp_path: Path) -> None:
    path = tmp_path / stack_socket_name(ME.pid, process_start(ME.pid) or 0)
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print('up', flush=True)\n"
        f"c, _ = s.accept(); c.recv(4096); c.sendall({GOOD!r}); c.close()"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert ask(tmp_path) == {}
        other.kill()


def test_a_process_without_a_socket_has_no_answer(tmp_path: Path) -> None:
    assert ask(tmp_path) == {}
    gone = StackQuestion(RankProcess(2**22 + 1, 0), "dump_traceback")
    assert ask_processes(str(tmp_path), [gone], 1) == {}


def test_one_silent_trainer_does_not_cost_another_its_answer(serve: Serve, tmp_path: Path) -> None:
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print('up', flush=True)\n"
        "import time; time.sleep(600)"
    )
    serve(lambda connection: connection.sendall(GOOD))
    with subprocess.Popen([sys.executable, "-c", code, "x"], stdout=subprocess.PIPE, cwd=tmp_path) as other:
        assert other.stdout is not None
        other.stdout.readline()
        process = RankProcess(other.pid, ME.uid)
        (tmp_path / "x").rename(tmp_path / stack_socket_name(other.pid, process_start(other.pid) or 0))
        silent = StackQuestion(process, "dump_traceback")
        assert ask_processes(str(tmp_path), [silent, QUESTION], 1) == {QUESTION: b"here"}
        other.kill()
