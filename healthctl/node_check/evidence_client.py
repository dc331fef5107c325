"""Fetches an evidence bundle from healthd's socket."""

from __future__ import annotations

import json
from pathlib import Path

from healthctl.exit_codes import Failure
from vocabulary.atomic_file import replace_file
from vocabulary.daemon_socket import NoResponseError, call_daemon
from vocabulary.messages.evidence_bundle import BUNDLE_BYTES_MAX
from vocabulary.messages.wire import Problem, WireError, decode_message

ANSWER_BYTES_MAX = BUNDLE_BYTES_MAX + (1 << 16)
PRIVATE = 0o600


def fetch_evidence(path: str, timeout_s: float) -> bytes:
    """The bundle as JSON.

    Raises:
        Failure: no response, or healthd refuses.
    """
    try:
        status, body = call_daemon(path, "/v1/evidence", timeout_s, bytes_max=ANSWER_BYTES_MAX)
    except NoResponseError as error:
        raise Failure(str(error)) from None
    if status != 200:
        raise Failure(f"{path}: {status}: {_parse_problem_text(body)}")
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
    replace_file(out, bundle, mode=PRIVATE)


def _parse_problem_text(body: bytes) -> str:
    try:
        problem = decode_message(body, Problem)
    except WireError:
        return body[:200].decode(errors="replace")
    return f"{problem.error}; {problem.todo}" if problem.todo else problem.error
