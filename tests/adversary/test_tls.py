"""A server that is not who it should be: a node and a person's command line tell it nothing, and least of all their token."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from healthctl.api_client.remediator_client import RemediatorClient
from healthctl.exit_codes import Failure
from healthd.controller.http_client import HttpClient, HttpError, TlsCredentials
from remediator.notifications.http_post import HttpPostRequest, send_http_post
from remediator.server_config import TlsSettings
from remediator.serving.listener import tls_context
from tests.conftest import skip_or_fail
from vocabulary.messages.wire import OrdersReply

TOKEN = "ghd_this_must_not_be_heard"
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\n{"orders":[]}'


def openssl(*arguments: str) -> None:
    if shutil.which("openssl") is None:
        skip_or_fail("no openssl here to make a certificate")
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def certificate(place: Path, name: str, lasts: tuple[str, str] = ("20240101000000Z", "20990101000000Z")) -> Path:
    """Key and certificate in one file, signed by itself, for one name and address."""
    key, both = place / f"{name}.key", place / f"{name}.pem"
    where = "IP:127.0.0.1" if name == "127.0.0.1" else f"DNS:{name}"
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key))
    openssl("req", "-new", "-key", str(key), "-subj", f"/CN={name}", "-out", str(place / "csr"))
    (place / "ext").write_text(f"subjectAltName={where}\nbasicConstraints=CA:true\n")
    (place / "index.txt").write_text("")
    (place / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=own\n[own]\ndatabase={place}/index.txt\nnew_certs_dir={place}\nrand_serial=yes\n"
        "default_md=sha256\npolicy=any\nunique_subject=no\n[any]\ncommonName=supplied\n"
    )
    openssl(
        "ca", "-batch", "-selfsign", "-config", str(place / "ca.cnf"), "-keyfile", str(key), "-in", str(place / "csr"),
        "-startdate", lasts[0], "-enddate", lasts[1], "-extfile", str(place / "ext"), "-out", str(both), "-notext",
    )  # fmt: skip
    both.write_bytes(key.read_bytes() + both.read_bytes())
    return both


class Impostor:
    """Answers everybody rightly, over TLS as its context has it, and keeps what it was told."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.heard = b""
        self._context = context
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._door.accept()
            except OSError:
                return
            with caller, contextlib.suppress(OSError):
                caller.settimeout(30)
                if self._context is None:
                    self.heard += caller.recv(4096)
                    caller.sendall(ANSWER)
                    continue
                with self._context.wrap_socket(caller, server_side=True) as tls:
                    while b"\r\n\r\n" not in self.heard and (piece := tls.recv(4096)):
                        self.heard += piece
                    tls.sendall(ANSWER)
                    while tls.recv(4096):  # a body that is not read would take the answer with it
                        pass

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self._thread.join(30)


def serving(pem: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


def by_node(port: int, ca_file: Path) -> bool:
    client = HttpClient(f"https://127.0.0.1:{port}", TlsCredentials(ca_file))
    try:
        return client.request("GET", "/", b"", {"Authorization": f"Bearer {TOKEN}"}, 30).status == 200
    except HttpError:
        return False
    finally:
        client.close()


def by_person(port: int, ca_file: Path) -> bool:
    try:
        RemediatorClient(f"https://127.0.0.1:{port}", TOKEN, ca_file).get("/", OrdersReply)
    except Failure:
        return False
    return True


def by_alert(port: int, ca_file: Path) -> bool:
    headers = {"authorization": f"Bearer {TOKEN}"}
    return send_http_post(HttpPostRequest(f"https://127.0.0.1:{port}/", b"{}", headers, str(ca_file)), 30).taken


Asking = Callable[[int, Path], bool]
CALLERS = [by_node, by_person, by_alert]


@pytest.fixture
def impostor() -> Iterator[Callable[[ssl.SSLContext | None], Impostor]]:
    made: list[Impostor] = []

    def make(context: ssl.SSLContext | None) -> Impostor:
        made.append(Impostor(context))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("asks", CALLERS)
def test_the_right_one_is_told(asks: Asking, tmp_path: Path, impostor: Callable[..., Impostor]) -> None:
    pem = certificate(tmp_path, "127.0.0.1")
    server = impostor(serving(pem))
    assert asks(server.port, pem)
    assert TOKEN.encode() in server.heard


@pytest.mark.parametrize("asks", CALLERS)
@pytest.mark.parametrize("wrong", ["another host", "expired", "not yet", "nobody's", "in the clear"])
def test_a_wrong_one_is_told_nothing(
    asks: Asking, wrong: str, tmp_path: Path, impostor: Callable[..., Impostor]
) -> None:
    pem = trusted = certificate(tmp_path, "127.0.0.1")
    if wrong == "another host":
        pem = trusted = certificate(tmp_path, "controller.example")
    elif wrong == "expired":
        pem = trusted = certificate(tmp_path, "127.0.0.1", ("20240101000000Z", "20240201000000Z"))
    elif wrong == "not yet":
        pem = trusted = certificate(tmp_path, "127.0.0.1", ("20980101000000Z", "20990101000000Z"))
    elif wrong == "nobody's":
        trusted = certificate(tmp_path, "controller.example")
    server = impostor(None if wrong == "in the clear" else serving(pem))
    assert not asks(server.port, trusted)
    assert TOKEN.encode() not in server.heard


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
@pytest.mark.parametrize(("newest", "meets"), [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)])
def test_the_controller_speaks_no_older_tls(tmp_path: Path, newest: ssl.TLSVersion, *, meets: bool) -> None:
    pem = certificate(tmp_path, "127.0.0.1")
    caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    caller.load_verify_locations(pem)
    caller.set_ciphers("DEFAULT:@SECLEVEL=0")  # as an old caller, that would take anything
    caller.minimum_version, caller.maximum_version = ssl.TLSVersion.TLSv1_1, newest
    assert _meet(tls_context(TlsSettings(str(pem), str(pem))), caller) == meets


def _meet(serving: ssl.SSLContext, calling: ssl.SSLContext) -> bool:
    """Whether the two shake hands, in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        calling.wrap_bio(back, there, server_hostname="127.0.0.1"),
        serving.wrap_bio(there, back, server_side=True),
    ]
    done = set()
    for _ in range(8):
        for side in sides:
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return len(done) == len(sides)
