from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from healthctl.commands.node_command import judge_verdict
from healthctl.node_check.output_formats import FORMS, NPD_BYTES_MAX, NodeJudgement
from healthctl.node_check.verdict_client import HEALTHS, VerdictAnswer

Run = Callable[..., Result]
Answer_ = Callable[[bytes], Path]
BAD = "n1 is unhealthy: xid/79 (fatal): GPU has fallen off the bus; " + 20 * "and more, "


def http(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def verdict(**fields: object) -> bytes:
    good = {"node": "n1", "health": "healthy", "fit": True, "condemned": False, "reasons": [], "at": time.time()}
    return http(json.dumps({**good, "age_s": 0.0, **fields}).encode())


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Answer_]:
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
                assert connection.recv(65536).startswith(b"GET /v1/verdict HTTP/1.0\r\n")
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
    healthctl: Run, answering: Answer_, fields: dict[str, object], code: int, says: str
) -> None:
    done = healthctl("node", "check", "--socket", str(answering(verdict(**fields))))
    assert (done.exit_code, done.stdout.partition(" | age=")[0]) == (code, says)


def test_the_environment_may_say_where_the_socket_is_on_each_node(
    healthctl: Run, answering: Answer_, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = answering(verdict())
    monkeypatch.setenv("HEALTHD_SOCKET", str(path).replace("healthd.sock", "{node}.sock"))
    monkeypatch.setenv("HEALTHD_NODE", "healthd")
    assert healthctl("node", "check").exit_code == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense",
        http(b"not json"),
        http(b"{}"),
        http(b'{"node": "n1"}'),
        http(b"starting", "503 Service Unavailable"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{",
        verdict(reasons="one"),
        verdict(reasons=[1]),
        verdict(at="now"),
        verdict(node=7),
        verdict(health="splendid"),
        verdict(fit="yes"),
    ],
)
def test_whatever_else_comes_is_unknown(healthctl: Run, answering: Answer_, answer: bytes) -> None:
    done = healthctl("node", "check", "--socket", str(answering(answer)))
    assert done.exit_code == 3
    assert done.stdout.startswith("UNKNOWN - no verdict from ")


def test_no_daemon_and_wrong_usage_are_unknown(healthctl: Run, tmp_path: Path) -> None:
    done = healthctl("node", "check", "--socket", str(tmp_path / "none"))
    assert done.exit_code == 3
    assert "check that healthd is running" in done.stdout
    assert healthctl("node", "check", "--bogus").exit_code == 3
    assert healthctl("node", "check", "--socket", "x" * 200).exit_code == 3


def test_json_is_the_verdict_itself(healthctl: Run, answering: Answer_) -> None:
    done = healthctl("node", "check", "-o", "json", "--socket", str(answering(verdict(health="degraded"))))
    assert (done.exit_code, json.loads(done.stdout)["health"]) == (1, "degraded")


@pytest.mark.parametrize(("health", "fit", "condemned"), list(itertools.product(HEALTHS, [True, False], [True, False])))
def test_only_what_is_clearly_fit_is_ok_or_warning(health: str, *, fit: bool, condemned: bool) -> None:
    code = judge_verdict(VerdictAnswer("n1", health, fit=fit, condemned=condemned, reasons=(), at=0.0, raw=b""))
    good = fit and not condemned and health in ("healthy", "degraded")
    assert (code in (0, 1)) is good


@pytest.mark.parametrize("fields", [{"age_s": None}, {"age_s": 3600}])
def test_a_verdict_that_is_old_is_no_verdict(healthctl: Run, answering: Answer_, fields: dict[str, object]) -> None:
    done = healthctl("node", "check", "--socket", str(answering(verdict(**fields))))
    assert (done.exit_code, "s old; healthd is stuck" in done.stdout) == (3, True)


def test_its_age_is_what_healthd_says_although_the_clock_was_set(healthctl: Run, answering: Answer_) -> None:
    path = answering(verdict(age_s=0.2, at=time.time() - 3600))
    assert healthctl("node", "check", "--socket", str(path)).exit_code == 0


def test_what_was_bad_is_not_better_for_being_old(healthctl: Run, answering: Answer_) -> None:
    path = answering(verdict(age_s=60, health="unhealthy", fit=False))
    assert healthctl("node", "check", "--socket", str(path)).exit_code == 2


@pytest.mark.parametrize("form", list(FORMS))
def test_every_form_of_every_state(form: str, golden: Callable[[str, str], None]) -> None:
    texts = ("n1 is healthy", "n1 is degraded: throttle/thermal (warning): GPU 3 is slowed for heat", BAD, "no verdict")
    lines = []
    for state, text in enumerate(texts):
        reply = FORMS[form](NodeJudgement(state, text, None if state == 3 else 0.5))
        lines.append(f"{reply.code} {reply.text!r}\n")
    golden(f"healthctl/node_check_{form}.txt", "".join(lines))


@pytest.mark.parametrize(("form", "code"), [("prolog", 1), ("epilog", 0), ("nhc", 1), ("npd", 2), ("app", 3)])
def test_no_daemon_in_each_form(healthctl: Run, tmp_path: Path, form: str, code: int) -> None:
    assert healthctl("node", "check", "--type", form, "--socket", str(tmp_path / "none")).exit_code == code


@pytest.mark.parametrize("form", list(FORMS))
def test_what_is_not_known_passes_only_if_told(healthctl: Run, tmp_path: Path, form: str) -> None:
    arguments = ("node", "check", "--type", form, "--on-unknown", "pass", "--socket", str(tmp_path / "none"))
    assert healthctl(*arguments).exit_code == 0


@given(st.text(max_size=300), st.integers(0, 3))
def test_whatever_the_text_node_problem_detector_gets_a_short_line(text: str, state: int) -> None:
    assert len(FORMS["npd"](NodeJudgement(state, text)).text.encode()) <= NPD_BYTES_MAX
