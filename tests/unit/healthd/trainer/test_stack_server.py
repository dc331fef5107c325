"""The server that answers where a rank is: beside its page, for its user only, and never in the way of training."""

from __future__ import annotations

import os
import socket
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from healthd.trainer.beacons.beacon import Beacon
from healthd.trainer.beacons.page_reader import process_start
from healthd.trainer.beacons.rank_placement import RankPlacement
from healthd.trainer.beacons.stack_socket import parse_socket_name, stack_socket_name
from healthd.trainer.guard import Guard
from healthd.trainer.stack_server import SWITCH, serve_stacks

MODULE = "torch._C._distributed_c10d"


class FakeServer:
    """A server that binds as torch's does, and leaves its file behind."""

    closed = 0

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(path)
        self._socket.listen()

    def shutdown(self) -> None:
        FakeServer.closed += 1
        self._socket.close()


@pytest.fixture
def torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeServer, "closed", 0)
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(_WorkerServer=FakeServer))


def socket_path(directory: Path) -> Path:
    return directory / stack_socket_name(os.getpid(), process_start(os.getpid()) or 0)


@pytest.mark.usefixtures("torch_is_imported")
def test_the_socket_is_for_its_user_only_and_is_removed(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)  # longer than the path of a socket may be
    deep.mkdir()
    close = serve_stacks(str(deep / "job.0.0.beacon"), {})
    status = socket_path(deep).lstat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert [each.name for each in deep.iterdir()] == [socket_path(deep).name]
    close()
    assert list(deep.iterdir()) == []
    assert FakeServer.closed == 1


@pytest.mark.usefixtures("torch_is_imported")
def test_it_can_be_switched_off(tmp_path: Path) -> None:
    close = serve_stacks(str(tmp_path / "page"), {SWITCH: "0"})
    assert list(tmp_path.iterdir()) == []
    close()
    close = serve_stacks(str(tmp_path / "page"), {SWITCH: "1"})
    assert socket_path(tmp_path).is_socket()
    close()


@pytest.mark.parametrize("known", [None, SimpleNamespace()])
def test_a_process_without_such_a_torch_has_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: object
) -> None:
    monkeypatch.setitem(sys.modules, MODULE, known)
    serve_stacks(str(tmp_path / "page"), {})()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("torch_is_imported")
def test_without_a_page_there_is_no_server() -> None:
    before = set(Path().iterdir())
    close = serve_stacks("", {})
    assert set(Path().iterdir()) == before
    close()


def test_whatever_fails_training_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str) -> None:
        raise RuntimeError(f"no thread for {path}")

    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(_WorkerServer=refuse))
    serve_stacks(str(tmp_path / "page"), {})()
    assert "training continues" in caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("torch_is_imported")
def test_a_later_server_of_the_process_keeps_its_socket(tmp_path: Path) -> None:
    first = serve_stacks(str(tmp_path / "page"), {})
    second = serve_stacks(str(tmp_path / "page"), {})
    first()
    assert socket_path(tmp_path).is_socket()
    second()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("torch_is_imported")
def test_a_guard_has_the_server_while_it_is_entered(beacon: Beacon) -> None:
    directory = Path(beacon.path).parent
    with Guard(RankPlacement("job", 0, 0, 1, node="here"), beacon, None):
        assert socket_path(directory).is_socket()
    assert not socket_path(directory).exists()


@pytest.mark.parametrize(
    "name", ["7.8.beacon", "0.8.stacks.sock", "7.8.stacks.sock.tmp", "7..stacks.sock", "²7.8.stacks.sock"]
)
def test_other_names_are_no_sockets(name: str) -> None:
    assert parse_socket_name(name) is None
