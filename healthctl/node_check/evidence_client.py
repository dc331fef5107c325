"""Fetches an evidence bundle from healthd's socket."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path

from healthctl.exit_codes import Failure
from vocabulary.messages.evidence_bundle import BUNDLE_BYTES_MAX
from vocabulary.messages.wire import Problem, WireError, decode_message

ANSWER_BYTES_MAX = BUNDLE_BYTES_MAX + (1 << 16)
PRIVATE = 0o600


class _Connection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def fetch_evidence(path: str, timeout_s: float) -> bytes:
    """The bundle as JSON.

    Raises:
        Failure: no response, or healthd refuses.
    """
    connection = _Connection(path, timeout_s)
    try:
        connection.request("GET", "/v1/evidence")
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX + 1)
    except TimeoutError:
        raise Failure(f"{path}: no response within {timeout_s:g} s; check whether healthd is stuck") from None
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}; check that healthd is running") from None
    except http.client.HTTPException as error:
        raise Failure(f"{path}: {error!r}; check that this is healthd's socket") from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise Failure(f"{path}: {answer.status}: {_parse_problem_text(body)}")
    if len(body) > ANSWER_BYTES_MAX:
        raise Failure(f"{path}: more than {ANSWER_BYTES_MAX} bytes; check that this is healthd's socket")
    return body


def escape_evidence_json(bundle: bytes) -> str:
    r"""Escape JSON to ASCII for terminals, since a kernel line may hold control sequences.

    >>> escape_evidence_json('{"text": "\u202e"}'.encode())
    '{"text":"\\u202e"}'

    Raises:
        Failure: it is not JSON.
    """
    try:
        return json.dumps(json.loads(bundle), separators=(",", ":")).replace("\x7f", "\\u007f")
    except ValueError as error:
        raise Failure(f"the answer is not JSON: {error}; check that this is healthd's socket") from None


def write_private_file(out: Path, bundle: bytes) -> None:
    """Create or replace the file `out`, readable only by its owner.

    Raises:
        OSError: it cannot be written.
    """
    part = out.with_name(f"{out.name}.part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, PRIVATE), "wb") as file:  # noqa: PTH123 - a descriptor
        os.fchmod(file.fileno(), PRIVATE)  # an existing file may have other permissions
        file.write(bundle)
    part.replace(out)


def _parse_problem_text(body: bytes) -> str:
    try:
        problem = decode_message(body, Problem)
    except WireError:
        return body[:200].decode(errors="replace")
    return f"{problem.error}; {problem.todo}" if problem.todo else problem.error
