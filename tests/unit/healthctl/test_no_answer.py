"""Every way in which no answer comes: one line, what to do next, code 3; and a token that goes nowhere else."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import Result

from tests.unit.healthctl.conftest import Remediator
from tests.unit.remediator.api.test_tls_listener import certificate

Run = Callable[..., Result]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A controller behind TLS, and the certificate that it shows."""
    cert, key = certificate(tmp_path, "localhost")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Remediator)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # callers that turn away are the subject
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}", cert
    server.shutdown()
    thread.join()
    server.server_close()


def says(healthctl: Run, url: str, token_file: Path, *more: str) -> str:
    done = healthctl("nodes", "--server", url, "--token-file", str(token_file), *more)
    assert (done.exit_code, done.stdout) == (3, ""), done.output
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_tls_with_and_without_its_authority(healthctl: Run, secured: tuple[str, Path], token_file: Path) -> None:
    url, cert = secured
    known = healthctl("nodes", "--server", url, "--token-file", str(token_file), "--ca-file", str(cert))
    assert known.exit_code == 0, known.stderr
    assert "node1" in known.stdout
    stranger = says(healthctl, url, token_file)
    assert "certificate verify failed" in stranger
    assert "give the CA certificate with --ca-file or HEALTHCTL_CA_FILE" in stranger
    assert f"{token_file}: contains no readable certificates" in says(
        healthctl, url, token_file, "--ca-file", str(token_file)
    )
    assert "no such file of CA certificates" in says(healthctl, url, token_file, "--ca-file", "/nowhere")
    assert "whether it requires https://" in says(healthctl, url.replace("https", "http"), token_file)


def test_tls_asked_of_who_speaks_none(healthctl: Run, serve: Callable[..., str], token_file: Path) -> None:
    words = says(healthctl, serve(Remediator).replace("http", "https"), token_file)
    assert "start the address with http://" in words


def test_a_name_that_nobody_has(healthctl: Run, token_file: Path) -> None:
    assert "check the host name" in says(healthctl, "http://no-such-host.invalid", token_file)


def test_who_takes_the_connection_and_says_nothing_of_http(healthctl: Run, token_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:

        def answer() -> None:
            caller, _ = mute.accept()
            with caller:
                caller.recv(65536)
                caller.sendall(b"220 smtp.example.org ESMTP\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        words = says(healthctl, f"http://127.0.0.1:{mute.getsockname()[1]}", token_file)
        thread.join()
    assert "check that it is a gpu-healthd controller" in words


SHOWN: list[str | None] = []


class Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        SHOWN.append(self.headers["Authorization"])
        self.send_response(302)
        self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/stolen")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Be quiet."""


def test_a_token_follows_no_redirect(healthctl: Run, serve: Callable[..., str], token_file: Path) -> None:
    SHOWN.clear()
    assert "302" in (words := says(healthctl, serve(Elsewhere), token_file))
    assert "redirects are not followed" in words
    assert [f"Bearer {token_file.read_text().strip()}"] == SHOWN, "once, and nowhere else"


def test_a_proxy_of_the_environment_is_asked(healthctl: Run, serve: Callable[..., str], token_file: Path) -> None:
    done = healthctl(
        "nodes", "--server", "http://centre.example", "--token-file", str(token_file),
        http_proxy=serve(Proxy), no_proxy="",
    )  # fmt: skip
    assert "http://centre.example: 418" in done.stderr


class Proxy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """A proxy is asked for whole addresses."""
        self.send_response(418 if self.path == "http://centre.example/v1/nodes" else 500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Be quiet."""
