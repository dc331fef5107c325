"""The context of every handler, wake-ups of long polls, and error responses."""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from remediator.api.latency_histogram import LatencyHistogram, make_loop_lag, make_report_times
from remediator.api.rate_limits import RateLimitGate
from remediator.config import Config
from remediator.engine.decision_engine import DecisionEngine
from remediator.engine.policy_reload import PolicyReloader
from remediator.execution.action_executor import ActionExecutor
from remediator.fleet.report_registry import ReportRegistry
from remediator.fleet.telemetry_cache import TelemetryCache
from remediator.model.pipeline_inputs import AnyInput
from remediator.monitoring.fleet_observer import FleetObserver
from remediator.store.journal import Journal, StoreError
from remediator.store.login_sessions import LoginSessions
from remediator.store.token_store import Tokens
from vocabulary.clock import Clock
from vocabulary.messages.message_bounds import holds_nul
from vocabulary.messages.wire import Problem, WireError, decode_message

T = TypeVar("T")

WAIT_MAX_S = 60.0
DURABLE_WAIT_S = 20.0
RETRY_AFTER_S = 5
NUL_TOLD = "the request contains the character NUL (%00 or \\u0000), which is not allowed"


class LongPollWakeups:
    """Wakes long polls after a publication, from any thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[str, set[asyncio.Event]] = {}  # by node; under "" those that need all publications
        self.ended = False

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop that serves the polls."""
        self._loop = loop

    def wake(self, nodes: Collection[str] | None = None) -> None:
        """Wake all polls, or those of some nodes only, to spare a fleet's thousands.

        Safe to call from any thread, also before the loop runs and after it has ended.
        """
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop closed just now
                self._loop.call_soon_threadsafe(self._set, nodes)

    def end(self) -> None:
        """The service stops: every poll answers now with what it has."""
        self.ended = True
        self.wake()

    def _set(self, nodes: Collection[str] | None) -> None:
        for key in list(self._waiting) if nodes is None else ("", *nodes):
            for event in self._waiting.get(key, ()):
                event.set()

    @contextlib.contextmanager
    def subscription(self, node: str = "") -> Iterator[asyncio.Event]:
        """Yield an event that is set by every wake-up while the block runs; with a node, by those that concern it."""
        event = asyncio.Event()
        self._waiting.setdefault(node, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[node].discard(event)
            if not self._waiting[node]:
                del self._waiting[node]


class HandlerContext(msgspec.Struct, frozen=True):
    """The parts a handler may use."""

    config: Config
    clock: Clock
    engine: DecisionEngine
    journal: Journal
    performer: ActionExecutor
    report_registry: ReportRegistry
    tokens: Tokens
    wakeups: LongPollWakeups
    reload: PolicyReloader
    gate: RateLimitGate
    fleet_observer: FleetObserver
    watch_faults: Mapping[str, int]  # internal errors of the detectors, by part
    sessions: LoginSessions
    telemetry: TelemetryCache = msgspec.field(default_factory=TelemetryCache)
    report_times: LatencyHistogram = msgspec.field(default_factory=make_report_times)
    loop_lag: LatencyHistogram = msgspec.field(default_factory=make_loop_lag)


class Refusal(Exception):
    """An error response with its status."""

    def __init__(
        self, status: int, error: str, todo: str = "", retry_after_s: int | None = None, *, finding: str = ""
    ) -> None:
        super().__init__(error)
        self.status = status
        self.headers = {} if retry_after_s is None else {"retry-after": str(retry_after_s)}
        self.problem = Problem(error=error, todo=todo, finding=finding)


def handler_context_of(request: Request) -> HandlerContext:
    """Return the application's context."""
    service: HandlerContext = request.app.state.service
    return service


async def read_request_body(request: Request, bytes_max: int) -> bytes:
    """Return the request's body.

    Raises:
        Refusal: 413, longer than `bytes_max`; 408, it is not complete in time.
    """
    chunks, size = [], 0
    limit_s = handler_context_of(request).gate.limits.body_s
    deadline = _BodyDeadline(limit_s)
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > bytes_max:
                raise Refusal(413, f"the body is longer than {bytes_max} bytes")
            chunks.append(chunk)
    except asyncio.CancelledError:
        if not deadline.over:
            raise
        raise Refusal(408, f"the body did not arrive within {limit_s:g} s") from None
    except ClientDisconnect:
        raise Refusal(400, "the body is incomplete") from None
    finally:
        deadline.met()
    return b"".join(chunks)


class _BodyDeadline:
    """Cancels this task unless it is `met` in time.

    Nearly every body has arrived already, and a task per body is expensive.
    """

    def __init__(self, within_s: float) -> None:
        self.over = False
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(within_s, self._pass)

    def met(self) -> None:
        self._timer.cancel()

    def _pass(self) -> None:
        self.over = True
        if self._task is not None:
            self._task.cancel()


async def decode_request_body(request: Request, kind: type[T], bytes_max: int) -> T:
    """Decode the request's body as a message.

    Raises:
        Refusal: 400, it is invalid; 408, 413 as `read_request_body`.
    """
    try:
        body = await read_request_body(request, bytes_max) or b"{}"  # an empty message may be sent as no body
        if holds_nul(body):
            raise Refusal(400, NUL_TOLD)
        return decode_message(body, kind)
    except WireError as error:
        words = f"the body is invalid: {error.__cause__ or error}"  # the error itself names our type
        raise Refusal(400, words, "see /v1/openapi.json for what is expected") from error


def refuse_nul_characters(request: Request) -> None:
    """Reject NUL characters: no database takes one in a name.

    Raises:
        Refusal: 400, it is in the path or the query.
    """
    if "\0" in request.scope["path"] or b"%00" in request.scope["query_string"]:
        raise Refusal(400, NUL_TOLD)


def query_number(request: Request, name: str, default: float, least: float, most: float) -> float:
    """Return a number from the query.

    Raises:
        Refusal: 400, it is not a number or out of range.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise Refusal(400, f"{name} is {text!r}; give a number from {least:g} to {most:g}")
    return value


def json_response(message: msgspec.Struct, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a message as JSON."""
    return Response(msgspec.json.encode(message), status, headers, media_type="application/json")


def check_admission(service: HandlerContext) -> None:
    """Check, before reading a request, whether it can be accepted.

    Raises:
        Refusal: 503, it would only wait in memory; the caller keeps it and retries.
    """
    if why := service.engine.overload():
        raise Refusal(503, f"nothing was accepted: {why}", "retry later", RETRY_AFTER_S)


def submit_input(service: HandlerContext, item: AnyInput) -> Future[None]:
    """Submit an input to the engine.

    Raises:
        Refusal: 503, the engine is overloaded.
    """
    try:
        return service.engine.submit_durably(item)
    except queue.Full:
        todo = "retry later"
        raise Refusal(503, "the controller is overloaded; nothing was accepted", todo, RETRY_AFTER_S) from None


async def wait_until_durable(service: HandlerContext, done: Future[None]) -> None:
    """Wait until an input is durable.

    Raises:
        Refusal: 503, it takes too long.
    """
    try:
        await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(done)), DURABLE_WAIT_S)
    except asyncio.TimeoutError:
        why = f"not durable yet: {service.engine.trouble or 'the database is slow'}"
        raise Refusal(503, why, "retry later; retries are safe", RETRY_AFTER_S) from None
    except StoreError as error:
        raise Refusal(503, f"this replica cannot write it: {error}", "send it to the leader", 1) from None
