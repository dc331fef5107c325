"""The server that answers where a rank is: beside its page, for its user only, and never in the way of training."""

from __future__ import annotations

import gc
import os
import socket
import stat
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from healthd.trainer import stack_server
from healthd.trainer.beacons.beacon import Beacon
from healthd.trainer.beacons.page_reader import process_start
from healthd.trainer.beacons.rank_placement import RankPlacement
from healthd.trainer.beacons.stack_socket import parse_socket_name, stack_socket_name
from healthd.trainer.guard import Guard
from healthd.trainer.stack_server import SWITCH, serve_stacks

MODULE = "torch._C._distributed_c10d"


class FakeServer:
    """A server that binds as torch's does."""

    alive: ClassVar[weakref.WeakSet[FakeServer]] = weakref.WeakSet()

    def __init__(self, path: str) -> None:
        FakeServer.alive.add(self)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(path)
        self.socket.listen()

    def shutdown(self) -> None:
        raise AssertionError("torch's may freeze the process")


@pytest.fixture
def torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(FakeServer, "alive", weakref.WeakSet())
    # Not in `sys.modules`: torch.distributed may be imported meanwhile.
    monkeypatch.setattr(stack_server, "find_server_type", lambda: FakeServer)
    yield
    for server in FakeServer.alive:
        server.socket.close()


def socket_path(directory: Path) -> Path:
    return directory / stack_socket_name(os.getpid(), process_start(os.getpid()) or 0)


@pytest.mark.usefixtures("torch_is_imported")
def test_the_socket_is_for_its_user_only(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)  # longer than the path of a socket may be
    deep.mkdir()
    serve_stacks(str(deep / "job.0.0.beacon"), {})
    status = socket_path(deep).lstat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert [each.name for each in deep.iterdir()] == [socket_path(deep).name]


@pytest.mark.usefixtures("torch_is_imported")
def test_a_process_has_one_server_which_is_never_freed(tmp_path: Path) -> None:
    for _ in range(2):  # such as the guards of two generations
        serve_stacks(str(tmp_path / "page"), {})
    gc.collect()
    assert len(FakeServer.alive) == 1
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(socket_path(tmp_path)))


def test_the_socket_is_removed_at_exit_and_not_by_a_forked_child(tmp_path: Path) -> None:
    code = (
        "import os, sys, types\n"
        "from tests.unit.healthd.trainer.test_stack_server import *\n"
        "sys.modules[MODULE] = types.SimpleNamespace(_WorkerServer=FakeServer)\n"
        "place = Path(sys.argv[1])\n"
        "serve_stacks(str(place / 'page'), {})\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit()\n"
        "os.waitpid(child, 0)\n"
        "print(socket_path(place).is_socket())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("torch_is_imported")
def test_it_can_be_switched_off(tmp_path: Path) -> None:
    serve_stacks(str(tmp_path / "page"), {SWITCH: "0"})
    assert list(tmp_path.iterdir()) == []
    serve_stacks(str(tmp_path / "page"), {SWITCH: "1"})
    assert socket_path(tmp_path).is_socket()


@pytest.mark.parametrize("known", [None, SimpleNamespace()])
def test_a_process_without_such_a_torch_has_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: object
) -> None:
    monkeypatch.setitem(sys.modules, MODULE, known)
    serve_stacks(str(tmp_path / "page"), {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("torch_is_imported")
def test_without_a_page_there_is_no_server() -> None:
    serve_stacks("", {})
    assert len(FakeServer.alive) == 0


def test_whatever_fails_training_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str) -> None:
        raise RuntimeError(f"no thread for {path}")

    monkeypatch.setattr(stack_server, "find_server_type", lambda: refuse)
    serve_stacks(str(tmp_path / "page"), {})
    assert "training continues" in caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("torch_is_imported")
def test_a_guard_opens_the_server_when_it_is_entered(beacon: Beacon) -> None:
    path = socket_path(Path(beacon.path).parent)
    with Guard(RankPlacement("job", 0, 0, 1, node="here"), beacon, None):
        assert path.is_socket()


@pytest.mark.parametrize(
    "name", ["7.8.beacon", "0.8.stacks.sock", "7.8.stacks.sock.tmp", "7..stacks.sock", "²7.8.stacks.sock"]
)
def test_other_names_are_no_sockets(name: str) -> None:
    assert parse_socket_name(name) is None
