"""Fetches the verdict from healthd's socket, and accepts only a complete and recent one.

Uses only the lightest modules of the standard library: an HTTP client and the codec would double the run time.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from vocabulary.daemon_socket import STALE_S, NoResponseError, call_daemon, verdict_age_s

HEALTHS = ("healthy", "degraded", "unhealthy", "unknown")


class NoAnswerError(Exception):
    """No response, or not a verdict. The message says what happened, and what to do."""


class VerdictAnswer(NamedTuple):
    """The verdict of this node. `at` is UTC seconds; `age_s` is its age when healthd sent it."""

    node: str
    health: str
    fit: bool
    condemned: bool
    reasons: tuple[str, ...]
    at: float
    raw: bytes
    age_s: float = 0.0


def query_verdict(
    path: str, deadline_s: float, only: tuple[str, ...] = (), ignore: tuple[str, ...] = ()
) -> VerdictAnswer:
    """Fetch the verdict over all findings, or without some.

    Raises:
        NoAnswerError: there is no valid verdict.
    """
    answer = _validate_answer(path, _get_page(path, f"/v1/verdict{_build_query_string(only, ignore)}", deadline_s))
    if answer.fit and not answer.age_s <= STALE_S:  # an unfit verdict stays valid when it is old
        raise NoAnswerError(
            f"{path}: the verdict is {answer.age_s:.0f} s old; healthd is stuck or was stopped: restart it"
        )
    return answer


def _build_query_string(only: tuple[str, ...], ignore: tuple[str, ...]) -> str:
    if not only and not ignore:
        return ""
    from urllib.parse import urlencode  # takes 5 ms, and most calls do not need it

    return "?" + urlencode([("only", word) for word in only] + [("ignore", word) for word in ignore])


def _get_page(path: str, page: str, deadline_s: float) -> bytes:
    """The body of a page."""
    try:
        status, body = call_daemon(path, page, deadline_s)
    except NoResponseError as error:
        raise NoAnswerError(f"no verdict from {error}") from None
    if status == 200:
        return body
    if problem := _parse_problem(body):
        raise NoAnswerError(f"no verdict: {problem}")
    raise NoAnswerError(f"no verdict from {path}: HTTP status {status}; check that this is healthd's socket")


def _parse_problem(body: bytes) -> str:
    """The error from healthd."""
    try:
        problem = json.loads(body)
        return f"{problem['error']}; {problem['todo']}"
    except (ValueError, KeyError, TypeError):
        return ""


def _validate_answer(path: str, body: bytes) -> VerdictAnswer:
    """Reject contradictory fields."""
    try:
        said: Any = json.loads(body)
    except ValueError as error:
        raise NoAnswerError(f"no verdict from {path}: not JSON: {error}; check that this is healthd's socket") from None
    if not _is_complete(said):
        raise NoAnswerError(f"no verdict from {path}: its fields are invalid; check that this is healthd's socket")
    reasons = tuple(said["reasons"])
    condemned, age_s = said["condemned"], verdict_age_s(said)
    return VerdictAnswer(said["node"], said["health"], said["fit"], condemned, reasons, said["at"], body, age_s)


def _is_complete(said: Any) -> bool:
    return (
        isinstance(said, dict)
        and isinstance(said.get("node"), str)
        and said.get("health") in HEALTHS
        and isinstance(said.get("fit"), bool)
        and isinstance(said.get("condemned"), bool)
        and isinstance(said.get("reasons"), list)
        and all(isinstance(reason, str) for reason in said["reasons"])
        and isinstance(said.get("at"), int | float)
    )
