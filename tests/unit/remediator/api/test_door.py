"""The door itself, over real sockets: TLS with client certificates, slow callers, and a node that enrols through it."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.centre import Centre, Denied, Unreachable
from healthd.config import RemediatorConfig
from remediator.config import ConfigError, load_config
from remediator.door import Limits, Tls
from remediator.http_protocol import certificate_names
from remediator.serve import _Server, tls_context
from remediator.store.database import StoreError
from tests.conftest import skip_or_fail
from tests.unit.remediator.api.inside import Inside
from tests.unit.remediator.api.test_access import report
from vocabulary.wire import Report, decode

REPORT = decode(report("gpu-1"), Report)


def certificate(place: Path, name: str) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key."""
    if shutil.which("openssl") is None:
        skip_or_fail("no openssl here to make a certificate")
    cert, key = place / f"{name}.pem", place / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


class Door:
    """A centre behind uvicorn, in this process."""

    def __init__(self, place: Path, tls: Tls | None = None, limits: Limits = Limits()) -> None:  # noqa: B008 - immutable
        self.inside = Inside(place, limits=limits, listen="127.0.0.1:0", tls=tls)
        self.server = _Server(self.inside.app, self.inside.config, self.inside.wakeups)  # type: ignore[arg-type]  # no front
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        deadline = time.monotonic() + 60
        while not self.server.started:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.port: int = self.server.servers[0].sockets[0].getsockname()[1]

    def close(self) -> None:
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
    tls = Tls(str(cert), str(key), str(client), "optional", nodes_by_certificate=True)
    door = Door(place, tls)
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
    centre = Centre(config, "gpu-1")
    assert centre.report(REPORT).acked_seq == 0
    assert token.stat().st_mode & 0o777 == 0o600
    kept = token.read_text()
    assert centre.report(REPORT).acked_seq == 0
    assert token.read_text() == kept
    centre.close()
    bare = Centre(RemediatorConfig(url=url, token_file=token, ca_file=place / "localhost.pem"), "gpu-1")
    with pytest.raises(Denied, match="no client certificate"):
        bare.report(REPORT)
    bare.close()
    strange = Centre(RemediatorConfig(url=url, token_file=token), "gpu-1")
    with pytest.raises(Unreachable, match="certificate verify failed"):
        strange.report(REPORT)
    strange.close()
    (place / "none").write_text("wrong")
    late = RemediatorConfig(
        url=url, token_file=place / "other", enrol_token_file=place / "none", ca_file=place / "localhost.pem"
    )
    wrong = Centre(late, "gpu-2")
    with pytest.raises(Denied, match="not known"):
        wrong.report(REPORT)
    wrong.close()
    assert not (place / "other").exists()


def test_nobody_speaks_in_the_clear_to_a_door_with_tls(secured: Door) -> None:
    with socket.create_connection(("127.0.0.1", secured.port), timeout=30) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP/1.1 200" not in plain.recv(4096)


def test_the_certificate_is_read_again(secured: Door, place: Path) -> None:
    certificate(place, "localhost")  # another one, in the same files
    secured.server.read_certificate()
    context = ssl.create_default_context(cafile=str(place / "localhost.pem"))
    with (
        socket.create_connection(("127.0.0.1", secured.port), timeout=30) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as tls,
    ):
        assert tls.version() in {"TLSv1.2", "TLSv1.3"}
    (place / "localhost.pem").write_text("damaged")
    secured.server.read_certificate()  # what is in force stays
    with pytest.raises(StoreError, match=r"localhost\.pem"):
        tls_context(secured.inside.config.tls)


def test_who_does_not_get_to_the_point_is_cut_off(place: Path) -> None:
    door = Door(place, limits=Limits(headers_s=0.3, body_s=0.3))
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
        ("listen: 0.0.0.0:15180", "in the clear"),
        ("listen: '[::]:15180'", "in the clear"),
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
