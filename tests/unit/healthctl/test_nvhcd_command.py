from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthctl.node_check.output_formats import CRITICAL, OK, UNKNOWN, WARNING, NodeJudgement
from healthctl.nvhcd.grpc_service import METHOD, SERVICE, HealthCheckServer, build_response
from healthctl.nvhcd.protobuf_messages import HealthCheckResponse, MessageError, decode_arguments, encode_response

# As Google's own library writes (protobuf, looked at once) HealthCheckResponse(success=True, exit_code=2, output="{}", error="é").
ENCODED = bytes.fromhex("080110021a027b7d2202c3a9")


def test_the_response_is_encoded_as_the_specification_says() -> None:
    assert encode_response(HealthCheckResponse(True, 2, "{}", "é")) == ENCODED
    assert encode_response(HealthCheckResponse(False, 0, "", "")) == b""
    assert encode_response(HealthCheckResponse(False, -1, "", "")) == b"\x10" + b"\xff" * 9 + b"\x01"


@given(st.lists(st.text(max_size=300), max_size=5))
def test_arguments_come_back(arguments: list[str]) -> None:
    words = [argument.encode(errors="replace") for argument in arguments]
    data = b"".join(b"\x0a" + _varint(len(word)) + word for word in words)
    assert decode_arguments(data) == tuple(word.decode() for word in words)


def _varint(value: int) -> bytes:
    return bytes((value,)) if value < 128 else bytes((value & 127 | 128, value >> 7))


@given(st.binary(max_size=200))
def test_any_bytes_are_arguments_or_refused(data: bytes) -> None:
    with contextlib.suppress(MessageError):
        assert isinstance(decode_arguments(data), tuple)


def test_fields_of_a_later_version_are_passed_over() -> None:
    assert decode_arguments(b"\x10\x05" + b"\x0a\x01a" + b"\x19" + b"x" * 8 + b"\x1d" + b"y" * 4) == ("a",)


@pytest.mark.parametrize(
    ("state", "pass_unknown", "success", "failed"),
    [
        (OK, False, True, 0),
        (WARNING, False, True, 0),
        (CRITICAL, False, False, 2),
        (CRITICAL, True, False, 2),
        (UNKNOWN, False, False, 2),
        (UNKNOWN, True, True, 0),
    ],
)
def test_what_is_not_known_fails_unless_told(state: int, *, pass_unknown: bool, success: bool, failed: int) -> None:
    response = build_response(NodeJudgement(state, "n1 is …"), ("one", "two"), pass_unknown=pass_unknown)
    assert (response.success, response.exit_code == 0, bool(response.error)) == (success, success, not success)
    output = json.loads(response.output)
    assert (output["fail_count"], len(output["failed_checks"])) == (failed, failed)


def ask(socket: Path) -> bytes:
    """As a launcher does, but without its generated classes."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/{METHOD}", request_serializer=None, response_deserializer=None)
        answer: bytes = call(b"\x0a\x06--fast", timeout=90, wait_for_ready=True)
        return answer


def test_a_real_client_gets_the_answer(tmp_path: Path) -> None:
    response = HealthCheckResponse(False, 2, "{}", "bad")
    server = HealthCheckServer(tmp_path / "s", lambda: response)
    server.start()
    try:
        assert ask(tmp_path / "s") == encode_response(response)
        assert (tmp_path / "s").stat().st_mode & 0o777 == 0o666
    finally:
        server.stop()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """`healthctl nvhcd` as a process."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> Path:
        listen = tmp_path / "nvhcd.sock"
        command = [sys.executable, "-m", "healthctl", "nvhcd", "--listen", str(listen), *arguments]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"GRPC_VERBOSITY": "NONE"}))
        output = processes[-1].stdout
        assert output is not None
        assert b"listening" in output.readline()
        return listen

    yield start
    for process in processes:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        if process.stdout is not None:
            process.stdout.close()


def test_without_healthd_the_node_fails_with_a_reason(program: Callable[..., Path], tmp_path: Path) -> None:
    began = time.monotonic()
    answer = ask(program("--socket", str(tmp_path / "none"), "--wait", "0"))
    assert b"check that healthd is running" in answer
    assert answer.startswith(b"\x10\x03"), "no success, exit code 3"
    assert time.monotonic() - began < 60


def test_a_place_that_cannot_be_used_is_said(healthctl: Callable[..., object], tmp_path: Path) -> None:
    result = healthctl("nvhcd", "--listen", str(tmp_path / "none" / "s"))
    assert result.exit_code == 3  # type: ignore[attr-defined]  # click's result
    assert "check that the directory exists" in result.stderr  # type: ignore[attr-defined]  # same
