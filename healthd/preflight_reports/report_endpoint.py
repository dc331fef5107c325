"""The endpoint that accepts preflight reports.

A report can condemn the node, so only root and healthd's user may send one.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from healthd.samples.preflight import PreflightSample
from vocabulary.messages.wire import Problem, encode_message

BODY_BYTES_MAX = 8 << 20

Answer = tuple[int, str, bytes]


def may_report_preflight(uid: int | None) -> bool:
    """Return whether this user may report; None means the request came over TCP."""
    return uid is not None and uid in (0, os.geteuid())


class PreflightEndpoint:
    """The endpoint. `tell` queues a report and returns whether its findings were stored."""

    def __init__(self, tell: Callable[[PreflightSample], bool], *, accept_injected: bool) -> None:
        self._tell = tell
        self._accept_injected = accept_injected

    def answer(self, body: bytes, uid: int | None) -> Answer:
        """Return status code, content type and body for a POST by user `uid`."""
        if not may_report_preflight(uid):
            return _make_problem_answer(
                403, "only root may report a preflight", "report it as root, over healthd's UNIX socket"
            )
        try:
            sample = msgspec.json.decode(body, type=PreflightSample)
        # RecursionError: brackets nested too deeply.
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return _make_problem_answer(
                400, f"this is not a preflight document: {error}", "send what preflight printed with -o json"
            )
        if sample.injected and not self._accept_injected:
            return _make_problem_answer(
                403, "this preflight had a fault injected", "set accept_injected: true to accept it"
            )
        if not self._tell(sample):
            return _make_problem_answer(
                503, "it could not be stored in time", "check healthd's log, and report it again"
            )
        says = f"preflight {sample.level}: {sample.verdict}"
        return 200, "application/json", msgspec.json.encode({"says": says})


def _make_problem_answer(code: int, error: str, todo: str) -> Answer:
    return code, "application/json", encode_message(Problem(error=error, todo=todo))
