from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from healthctl.commands.node import judge
from vocabulary.health import Health, Verdict

Run = Callable[..., Result]
Answer = Callable[[bytes], Path]


def http(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def verdict(**fields: object) -> bytes:
    good = {"node": "n1", "health": "healthy", "fit": True, "condemned": False, "reasons": [], "at": 1.0}
    return http(json.dumps(good | fields).encode())


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Answer]:
    """A daemon's socket that gives one answer, byte for byte."""
    listener = socket.socket(socket.AF_UNIX)
    threads: list[threading.Thread] = []

    def start(answer: bytes) -> Path:
        path = tmp_path / "healthd.sock"
        listener.bind(str(path))
        listener.listen(1)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(65536).startswith(b"GET /v1/verdict HTTP/1.1\r\n")
                connection.sendall(answer)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return path

    yield start
    for thread in threads:
        thread.join(30)
    listener.close()


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({}, 0, "OK - n1 is healthy"),
        ({"health": "degraded", "reasons": ["hot"]}, 1, "WARNING - n1 is degraded: hot"),
        ({"health": "unhealthy", "fit": False, "reasons": ["a\x1b", "b"]}, 2, "CRITICAL - n1 is unhealthy: a\\x1b; b"),
        ({"condemned": True, "fit": False}, 2, "CRITICAL - n1 is healthy"),
        ({"health": "unknown", "fit": False}, 3, "UNKNOWN - n1 is unknown"),
        ({"fit": False}, 3, "UNKNOWN - n1 is healthy"),
    ],
)
def test_the_verdict_as_nagios_wants_it(
    healthctl: Run, answering: Answer, fields: dict[str, object], code: int, says: str
) -> None:
    done = healthctl("node", "check", "--socket", str(answering(verdict(**fields))))
    assert (done.exit_code, done.stdout.rstrip("\n")) == (code, says)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense",
        http(b"not json"),
        http(b"{}"),
        http(b'{"node": "n1"}'),
        http(b"starting", "503 Service Unavailable"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{}",
        verdict(health="splendid"),
        verdict(fit="yes"),
    ],
)
def test_whatever_else_comes_is_unknown(healthctl: Run, answering: Answer, answer: bytes) -> None:
    done = healthctl("node", "check", "--socket", str(answering(answer)))
    assert done.exit_code == 3
    assert done.stdout.startswith("UNKNOWN - no verdict from ")


def test_no_daemon_and_wrong_usage_are_unknown(healthctl: Run, tmp_path: Path) -> None:
    done = healthctl("node", "check", "--socket", str(tmp_path / "none"))
    assert done.exit_code == 3
    assert "is healthd running?" in done.stdout
    assert healthctl("node", "check", "--bogus").exit_code == 3
    assert healthctl("node", "check", "--socket", "x" * 200).exit_code == 3


def test_json_is_the_verdict_itself(healthctl: Run, answering: Answer) -> None:
    done = healthctl("node", "check", "-o", "json", "--socket", str(answering(verdict(health="degraded"))))
    assert (done.exit_code, json.loads(done.stdout)["health"]) == (1, "degraded")


@pytest.mark.parametrize(("health", "fit", "condemned"), list(itertools.product(Health, [True, False], [True, False])))
def test_only_what_is_clearly_fit_is_ok_or_warning(health: Health, *, fit: bool, condemned: bool) -> None:
    code = judge(Verdict("n1", health, fit=fit, condemned=condemned, reasons=(), at=0.0))
    good = fit and not condemned and health in (Health.HEALTHY, Health.DEGRADED)
    assert (code in (0, 1)) is good
