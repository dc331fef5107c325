"""The door itself, over real sockets: TLS with client certificates, slow callers, and a node that enrols through it."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from healthd.config import RemediatorConfig
from healthd.controller.controller_client import ControllerClient, ControllerDenied, ControllerUnreachable, enrol_node
from healthd.controller.http_client import HttpClient, HttpError, HttpResponse, TlsCredentials
from remediator.api.api_application import HANDLERS
from remediator.api.fast_path import FastPathApplication
from remediator.api.route_table import ENDPOINTS
from remediator.config import ConfigError, load_config
from remediator.model.credentials import Role
from remediator.server_config import AccessLimits, TlsSettings
from remediator.serving.http_protocol import HEAD_BYTES_MAX, certificate_names
from remediator.serving.listener import Listener, tls_context
from remediator.serving.replica import _DrainingServer
from remediator.store.database import StoreError
from tests.conftest import skip_or_fail
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import report
from vocabulary.messages.wire import Report, decode_message

REPORT = decode_message(report("gpu-1"), Report)


def certificate(place: Path, name: str) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key."""
    if shutil.which("openssl") is None:
        skip_or_fail("no openssl here to make a certificate")
    cert, key = place / f"{name}.pem", place / f"{name}.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        f"/CN={name}",
    ]
    command += ["-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


class Door:
    """A controller behind uvicorn, in this process."""

    def __init__(self, place: Path, tls: TlsSettings | None = None, limits: AccessLimits = AccessLimits()) -> None:  # noqa: B008 - immutable
        self.inside = Inside(place, limits=limits, listen="127.0.0.1:0", tls=tls)
        app = FastPathApplication(self.inside.app, ENDPOINTS, HANDLERS)
        self.server = _DrainingServer(app, self.inside.config, self.inside.wakeups)  # type: ignore[arg-type]  # no front
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        deadline = time.monotonic() + 60
        while not self.server.listener.listening:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.port = self.server.listener.port

    def close(self) -> None:
        self.inside.wakeups.end()
        self.server.should_exit = True
        self.thread.join(30)
        self.inside.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def secured(place: Path) -> Iterator[Door]:
    cert, key = certificate(place, "localhost")
    client, _ = certificate(place, "gpu-1")
    door = Door(place, TlsSettings(str(cert), str(key), str(client), "optional", nodes_by_certificate=True))
    yield door
    door.close()


@pytest.fixture
def open_door(place: Path) -> Iterator[Door]:
    door = Door(place)
    yield door
    door.close()


def test_a_node_enrols_through_tls_and_counts_only_with_its_certificate(secured: Door, place: Path) -> None:
    (place / "join").write_text(secured.inside.token["join"])
    url = f"https://127.0.0.1:{secured.port}"
    token = place / "token"
    config = RemediatorConfig(
        url=url,
        token_file=token,
        enrol_token_file=place / "join",
        ca_file=place / "localhost.pem",
        certificate=place / "gpu-1.pem",
        certificate_key=place / "gpu-1.key",
    )
    centre = ControllerClient(config, "gpu-1")
    assert centre.report(REPORT).acked_seq == 0
    assert token.stat().st_mode & 0o777 == 0o600
    kept = token.read_text()
    assert centre.report(REPORT).acked_seq == 0
    assert token.read_text() == kept
    centre.close()
    bare = ControllerClient(RemediatorConfig(url=url, token_file=token, ca_file=place / "localhost.pem"), "gpu-1")
    with pytest.raises(ControllerDenied, match="no client certificate"):
        bare.report(REPORT)
    bare.close()
    strange = ControllerClient(RemediatorConfig(url=url, token_file=token), "gpu-1")
    with pytest.raises(ControllerUnreachable, match="certificate verify failed"):
        strange.report(REPORT)
    strange.close()
    (place / "none").write_text("wrong")
    late = RemediatorConfig(
        url=url, token_file=place / "other", enrol_token_file=place / "none", ca_file=place / "localhost.pem"
    )
    wrong = ControllerClient(late, "gpu-2")
    with pytest.raises(ControllerDenied, match="unknown"):
        wrong.report(REPORT)
    wrong.close()
    assert not (place / "other").exists()


def test_a_node_that_never_got_its_answer_enrols_again(open_door: Door, place: Path) -> None:
    class Lossy(HttpClient):
        def request(self, *args: Any) -> HttpResponse:
            super().request(*args)
            self.close()
            raise HttpError("the answer was lost")

    (place / "join").write_text(open_door.inside.tokens.issue(Role.JOIN, "gpu-*", time.time(), uses=1))
    url = f"http://127.0.0.1:{open_door.port}"
    with pytest.raises(ControllerUnreachable, match="lost"):
        enrol_node(Lossy(url), url, "gpu-1", place / "join", place / "token")
    assert not (place / "token").exists()
    config = RemediatorConfig(url=url, token_file=place / "token", enrol_token_file=place / "join")
    centre = ControllerClient(config, "gpu-1")
    assert centre.report(REPORT).acked_seq == 0
    centre.close()
    assert sorted(path.name for path in place.glob("token*")) == ["token"]
    assert (place / "token").stat().st_mode & 0o777 == 0o600


def test_nobody_speaks_in_the_clear_to_a_door_with_tls(secured: Door) -> None:
    with socket.create_connection(("127.0.0.1", secured.port), timeout=30) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP/1.1 200" not in plain.recv(4096)


def test_the_certificate_is_read_again(secured: Door, place: Path) -> None:
    certificate(place, "localhost")  # another one, in the same files
    secured.server.listener.read_certificate()
    context = ssl.create_default_context(cafile=str(place / "localhost.pem"))
    with (
        socket.create_connection(("127.0.0.1", secured.port), timeout=30) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as tls,
    ):
        assert tls.version() in {"TLSv1.2", "TLSv1.3"}
    (place / "localhost.pem").write_text("damaged")
    secured.server.listener.read_certificate()  # what is in force stays
    with pytest.raises(StoreError, match=r"localhost\.pem"):
        tls_context(TlsSettings(str(place / "localhost.pem"), str(place / "localhost.key")))


def test_who_does_not_get_to_the_point_is_cut_off(place: Path) -> None:
    door = Door(place, limits=AccessLimits(headers_s=0.3, body_s=0.3))
    try:
        for beginning in (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A"):
            with socket.create_connection(("127.0.0.1", door.port), timeout=60) as slow:
                slow.sendall(beginning)
                assert slow.recv(1) == b""
        with socket.create_connection(("127.0.0.1", door.port), timeout=60) as slow:
            token = door.inside.token["n1"]
            head = f"POST /v1/nodes/n1/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\n\r\n"
            slow.sendall(head.encode() + b"{")
            assert slow.recv(4096).startswith(b"HTTP/1.1 408")
    finally:
        door.close()


def asked(door: Door, place: Path, path: str, token: str, shows: str = "") -> int:
    """The status of a GET over a connection of its own, which shows a certificate or none."""
    trust = TlsCredentials(
        place / "localhost.pem", *((place / f"{shows}.pem", place / f"{shows}.key") if shows else ())
    )
    client = HttpClient(f"https://127.0.0.1:{door.port}", trust)
    try:
        return client.request("GET", path, b"", {"Authorization": f"Bearer {token}"}, 30.0).status
    finally:
        client.close()


def test_a_copied_token_is_worth_nothing_anywhere_and_uses_up_nothing(place: Path) -> None:
    cert, key = certificate(place, "localhost")
    client, _ = certificate(place, "n1")
    tls = TlsSettings(str(cert), str(key), str(client), "optional", nodes_by_certificate=True)
    door = Door(place, tls, AccessLimits(node_per_s=0.001, node_burst=2, unknown_per_s=0.001, unknown_burst=3))
    try:
        token = door.inside.token["n1"]
        copied = [asked(door, place, path, token) for path in ("/v1/hazard/j", "/v1/nodes/n1/orders") * 2]
        assert copied == [403, 403, 403, 429]
        assert asked(door, place, "/v1/nodes/n1/orders", token, "n1") == 200
        assert asked(door, place, "/v1/hazard/j", token, "n1") == 403  # it holds no rank of it
    finally:
        door.close()


def test_an_authority_that_was_taken_out_is_trusted_no_more(secured: Door, place: Path) -> None:
    token = secured.inside.tokens.issue(Role.NODE, "gpu-1", 1.0)
    (place / "token").write_text(token)
    config = RemediatorConfig(
        url=f"https://127.0.0.1:{secured.port}",
        token_file=place / "token",
        ca_file=place / "localhost.pem",
        certificate=place / "gpu-1.pem",
        certificate_key=place / "gpu-1.key",
    )
    centre = ControllerClient(config, "gpu-1")
    assert centre.report(REPORT).acked_seq == 0
    authorities = place / "gpu-1.pem"
    mine = authorities.read_bytes()
    other, _ = certificate(place, "other")
    authorities.write_bytes(other.read_bytes())
    secured.server.listener.read_certificate()
    authorities.write_bytes(mine)  # the client shows its own
    assert centre.report(REPORT).acked_seq == 0  # the connection was there before; this is its last answer
    with pytest.raises(ControllerUnreachable):
        centre.report(REPORT)
    centre.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"x" * HEAD_BYTES_MAX + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * (HEAD_BYTES_MAX // 2) + b"\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * (4 * HEAD_BYTES_MAX),  # and never comes to an end
    ],
    ids=["path", "one header", "many headers", "no end"],
)
def test_a_head_is_so_long_and_no_longer(open_door: Door, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", open_door.port), timeout=60) as caller:
        with contextlib.suppress(ConnectionError):
            caller.sendall(sent)
        with contextlib.suppress(ConnectionError):
            assert caller.recv(4096).startswith(b"HTTP/1.1 431")
            assert caller.recv(4096) == b""


def test_what_comes_after_a_body_is_bounded_too(open_door: Door) -> None:
    """Trailers are headers to the parser."""
    token = open_door.inside.token["n1"]
    head = f"POST /v1/nodes/n1/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", open_door.port), timeout=60) as caller:
        with contextlib.suppress(ConnectionError):
            caller.sendall(head.encode() + b"1\r\n{\r\n0\r\nX: " + b"x" * (1 << 20))
        with contextlib.suppress(ConnectionError):
            assert caller.recv(4096).startswith(b"HTTP/1.1 431")


def test_requests_ahead_of_their_answers_are_so_many(open_door: Door) -> None:
    token = open_door.inside.token["n1"]
    poll = f"GET /v1/nodes/n1/orders?wait_s=60 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", open_door.port), timeout=50) as caller:
        caller.sendall(poll.encode() + b"GET /livez HTTP/1.1\r\n\r\n" * 5000)
        assert caller.recv(4096).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("beginning", [b"", b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_who_shows_no_token_is_not_kept_waiting_for(place: Path, beginning: bytes) -> None:
    """Also where a byte comes now and then that begins no request."""
    door = Door(place, limits=AccessLimits(headers_s=0.3))
    try:
        with socket.create_connection(("127.0.0.1", door.port), timeout=60) as idle:
            idle.sendall(beginning)
            with contextlib.suppress(ConnectionError):
                while idle.recv(4096):
                    idle.sendall(b"\r\n")
        token = door.inside.token["n1"]
        known = f"GET /v1/nodes/n1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", door.port), timeout=60) as node:
            for _ in range(2):
                node.sendall(known.encode())
                answer = b""
                while not answer.endswith(b'{"orders":[]}'):  # head and body may come apart
                    answer += node.recv(4096) or b"the end"
                    assert answer.startswith(b"HTTP/1.1 200")
                    assert not answer.endswith(b"the end")
                time.sleep(0.6)
    finally:
        door.close()


@pytest.mark.parametrize("secure", [False, True])
def test_strangers_are_so_many_and_nodes_are_no_strangers(place: Path, *, secure: bool) -> None:
    cert, key = certificate(place, "localhost") if secure else ("", "")
    tls = TlsSettings(str(cert), str(key)) if secure else None
    door = Door(place, tls, AccessLimits(strangers_per_address=3, headers_s=300.0))
    try:
        nodes = []
        for _ in range(5):  # known at once, so they take no stranger's room
            trust = TlsCredentials(place / "localhost.pem") if secure else TlsCredentials()
            nodes.append(HttpClient(f"http{'s' if secure else ''}://127.0.0.1:{door.port}", trust))
            head = {"Authorization": f"Bearer {door.inside.token['n1']}"}
            assert nodes[-1].request("GET", "/v1/nodes/n1/orders", b"", head, 30.0).status == 200
        silent = [socket.create_connection(("127.0.0.1", door.port), timeout=60) for _ in range(3)]
        deadline = time.monotonic() + 60
        while len(door.server.listener.guests) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        silent.append(socket.create_connection(("127.0.0.1", door.port), timeout=60))
        with contextlib.suppress(ConnectionError):
            assert silent[-1].recv(1) == b""  # no room for a fourth
        for caller in silent:
            caller.close()
        for node in nodes:
            node.close()
        while len(door.server.listener.guests):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        door.close()


def test_an_address_that_is_taken_is_said(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = Listener(taken.getsockname(), None, AccessLimits(), lambda: None)  # type: ignore[arg-type,return-value]  # nobody comes
        with pytest.raises(StoreError, match=r"listen 127\.0\.0\.1:\d+: Address already in use"):
            listener.bind()


def test_the_names_in_a_certificate() -> None:
    told = {
        "subject": ((("organizationName", "o"),), (("commonName", "n1"),)),
        "subjectAltName": (("DNS", "n1.cluster"), ("DNS", "n1"), ("IP Address", "127.0.0.1")),
    }
    assert certificate_names(told) == ("n1.cluster", "n1")
    assert certificate_names({}) == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("listen: 0.0.0.0:15180", "in clear text"),
        ("listen: '[::]:15180'", "in clear text"),
        ("tls: {certificate: c, key: k, client_certificate: required}", "belong together"),
        ("tls: {certificate: c, key: k, nodes_by_certificate: true}", "needs client_certificate"),
        ("tls: {certificate: c, key: k, client_certificate: maybe}", "known: none, optional"),
        ("limits: {node_per_s: 0}", "limits.node_per_s"),
        ("limits: {nodes_per_s: 1}", "did you mean 'node_per_s'"),
    ],
)
def test_a_door_that_makes_no_sense_is_said(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(tmp_path / "r.yaml")
    assert says in str(error.value)


@pytest.mark.parametrize("text", ["listen: 0.0.0.0:1\ninsecure: true", "listen: '[::1]:1'", "listen: localhost:1"])
def test_a_door_that_is_safe_or_meant(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    assert load_config(tmp_path / "r.yaml").listen
