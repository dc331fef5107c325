"""slurmrestd of newer versions than can be installed here: a server on a UNIX socket that answers as their schemas say."""

from __future__ import annotations

import contextlib
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import msgspec
import pytest

from remediator.schedulers.slurm.controller_protocol import CommandDeadline, SlurmError
from remediator.schedulers.slurm.slurm_commands import SlurmCommands
from remediator.schedulers.slurm.slurm_options import RestOptions, SlurmOptions
from remediator.schedulers.slurm.slurmrestd import Slurmrestd

COMPOSED = Path(__file__).parents[4] / "golden" / "slurm" / "composed"
VERSION = "v0.0.43"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.reply()

    def do_POST(self) -> None:
        self.server.bodies.append(msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"]))))
        self.reply()

    def reply(self) -> None:
        self.server.asked.append((self.command, self.path, self.headers.get("X-SLURM-USER-TOKEN")))
        known = self.path.startswith(f"/slurm/{VERSION}/")
        status, body = (self.server.status, self.server.body) if known else (404, b"Unable find requested URL.")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            for at in range(0, len(body), self.server.piece):
                self.wfile.write(body[at : at + self.server.piece])
                time.sleep(self.server.between_s)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        pass


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    status = 200
    body = b""
    piece = 1 << 20
    between_s = 0.0

    def __init__(self, path: str) -> None:
        self.asked: list[tuple[str, str, str | None]] = []
        self.bodies: list[object] = []
        super().__init__(path, Handler)


@pytest.fixture
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="gh-rest-") as place, Server(f"{place}/s") as server:
        server.body = (COMPOSED / f"{VERSION}.json").read_bytes()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def restd(server: Server, token_file: str = "", version: str = "") -> Slurmrestd:
    options = RestOptions(url=f"unix:{server.server_address}", token_file=token_file, user="slurm", version=version)
    return Slurmrestd(options, SlurmCommands(SlurmOptions()))


def test_the_newest_version_that_both_know_is_found_once(server: Server) -> None:
    slurm = restd(server)
    assert len(slurm.nodes(CommandDeadline(5.0))) == 8
    assert len(slurm.jobs(CommandDeadline(5.0))) == 5
    assert slurm.reservations(CommandDeadline(5.0))[0].name == "gpu-healthd-pair"
    assert [path for _, path, _ in server.asked] == [
        "/slurm/v0.0.45/ping",
        "/slurm/v0.0.44/ping",
        "/slurm/v0.0.43/ping",
        "/slurm/v0.0.43/nodes",
        "/slurm/v0.0.43/jobs",
        "/slurm/v0.0.43/reservations",
    ]


def test_only_an_api_that_changes_no_nodes_leaves_lists_to_commands(server: Server) -> None:
    assert not restd(server, version=VERSION).takes_lists(CommandDeadline(5.0))
    assert restd(server, version="v0.0.38").takes_lists(CommandDeadline(5.0))


def test_a_drain_and_its_end_are_posted(server: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("SLURM_JWT=abc\n")
    slurm = restd(server, str(token), VERSION)
    server.body = b'{"errors": [], "warnings": []}'
    slurm.drain("node1", "gpu-healthd: inc-1", CommandDeadline(5.0))
    token.write_text("def\n")
    slurm.resume("node/1", CommandDeadline(5.0))
    assert server.bodies == [{"state": ["DRAIN"], "reason": "gpu-healthd: inc-1"}, {"state": ["RESUME"]}]
    assert server.asked == [
        ("POST", "/slurm/v0.0.43/node/node1", "abc"),
        ("POST", "/slurm/v0.0.43/node/node%2F1", "def"),
    ]


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, b'{"errors": [{"description": "Access denied", "error": "no rights"}]}', "Access denied: no rights"),
        (500, b'{"errors": []}', "status 500"),
        (401, b"Authentication failure", "access denied"),
        (502, b"<html>", "status 502"),
    ],
)
def test_a_change_that_was_not_taken_says_so(server: Server, status: int, body: bytes, why: str) -> None:
    server.status, server.body = status, body
    with pytest.raises(SlurmError, match=why):
        restd(server, version=VERSION).drain("node1", "gpu-healthd: inc-1", CommandDeadline(5.0))


def test_whom_it_does_not_know_it_says_so(server: Server) -> None:
    server.body = b'{"errors": [{"description": "Failure to query node n9", "source": "_dump_nodes"}], "nodes": []}'
    assert restd(server).node("n9", CommandDeadline(5.0)) is None


def test_without_a_token_nobody_is_let_in_and_the_key_is_named(server: Server, tmp_path: Path) -> None:
    server.status, server.body = 401, b"Authentication failure"
    with pytest.raises(SlurmError, match=r"access denied \(status 401\); see scheduler\.slurm\.rest\.user"):
        restd(server).nodes(CommandDeadline(5.0))
    with pytest.raises(SlurmError, match=r"token_file: .*: No such file"):
        restd(server, str(tmp_path / "none")).nodes(CommandDeadline(5.0))


def test_an_answer_that_comes_drop_by_drop_ends_with_the_deadline(server: Server) -> None:
    server.piece, server.between_s = 1, 0.05
    begun = time.monotonic()
    with pytest.raises(SlurmError, match=r"no answer within 0\.5 s"):
        restd(server, version=VERSION).nodes(CommandDeadline(0.5))
    assert time.monotonic() - begun < 60.0  # the whole answer would have taken minutes


def test_a_server_without_any_version_of_ours_says_which_it_should_have(server: Server) -> None:
    server.status = 404
    with pytest.raises(SlurmError, match=r"no API from v0\.0\.37 to v0\.0\.45"):
        restd(server).nodes(CommandDeadline(5.0))


def test_old_versions_change_nodes_by_command(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("remediator.schedulers.slurm.slurm_commands.SEARCH_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="cannot run scontrol"):
        restd(server, version="v0.0.38").drain("node1", "gpu-healthd: inc-1", CommandDeadline(5.0))
    assert server.bodies == []
    assert restd(server).topology(CommandDeadline(5.0)) == {}  # without the commands nobody tells, and the rest goes on
    assert restd(server).began(CommandDeadline(5.0)) is None
