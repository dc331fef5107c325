"""This node's connection to NATS, in a thread with an event loop of its own. Any thread may use it.

A request goes into the stream of the ingest processes, and its reply comes back on this node's own subjects. Nothing is
kept here: after a lost connection each caller sends again, from what the node has on its disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import secrets
import threading
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from healthd.config import NatsConfig, RemediatorConfig
from healthd.controller.controller_client import (
    ControllerClient,
    ControllerDenied,
    ControllerError,
    ControllerUnreachable,
    RetryBackoff,
)
from healthd.controller.http_client import TlsCredentials
from vocabulary.messages.nats_protocol import (
    ENVELOPE_BYTES,
    KINDS,
    NodeMessage,
    NodeReply,
    decode_node_reply,
    encode_envelope,
    node_prefix,
    upward_subject,
)

CONNECT_S = 20  # the controller checks the token meanwhile
READY_S = 5.0  # how long a caller waits for the connection
PING_S = 10  # a silent server counts as lost after two of them
JOIN_S = 2.0
_NO_STREAM = "503"

_log = logging.getLogger("healthd.nats")


class _StoreError(msgspec.Struct, frozen=True):
    description: str = ""


class _Stored(msgspec.Struct, frozen=True):
    """JetStream's answer to a message: stored, or why not."""

    error: _StoreError | None = None


class NatsConnection:
    """Keeps one connection, with this node's token."""

    def __init__(self, config: RemediatorConfig, node: str) -> None:
        assert config.nats is not None  # noqa: S101 - the caller checked
        self._config: NatsConfig = config.nats
        self._node = node
        self._prefix = node_prefix(config.nats.cluster, node)
        self._http = ControllerClient(config, node)  # for the token alone
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="nats", daemon=True)
        self._client: Client | None = None
        self._ids = (f"{secrets.token_hex(6)}-{number}" for number in itertools.count())
        self._pending: dict[str, Future[NodeReply]] = {}
        self._turns = {kind: threading.Lock() for kind in KINDS}  # a newer message of a kind replaces the older
        self._changed = threading.Condition()  # guards what follows
        self._trouble: ControllerError = ControllerUnreachable(f"{self.url}: not connected yet")
        self._ready = False
        self._orders: bytes | None = None
        self.direct_until = 0.0  # monotonic seconds; until then orders are fetched over HTTP

    @property
    def url(self) -> str:
        """The servers, for messages."""
        return ", ".join(self._config.servers)

    def start(self) -> None:
        """Start the thread, which connects."""
        self._thread.start()

    def stop(self) -> None:
        """Close the connection, with a short wait."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(JOIN_S)

    def send(self, kind: str, body: bytes, started: Future[NodeReply], wait_s: float) -> NodeReply:
        """Send a message and return the controller's reply. `started` may be failed by another thread to end the wait.

        Raises:
            ControllerUnreachable, ControllerDenied: no connection, the message was not stored, or no reply in time.
        """
        with self._turns[kind]:
            client = self._require_client(min(READY_S, wait_s))
            name = next(self._ids)
            self._pending[name] = started
            try:
                content = encode_envelope(NodeMessage(name, body))
                if len(content) > client.max_payload:
                    raise ControllerUnreachable(f"{self.url}: {len(content)} bytes exceed max_payload of the server")
                subject = upward_subject(self._config.cluster, kind, self._node)
                sending = client.publish(subject, content, reply=f"{self._prefix}.stored.{name}")
                asyncio.run_coroutine_threadsafe(sending, self._loop).add_done_callback(
                    lambda sent: self._note_sent(name, sent)
                )
                return started.result(wait_s)
            except FutureTimeoutError:
                raise ControllerUnreachable(f"{self.url}: no reply within {wait_s:g} s") from None
            finally:
                del self._pending[name]

    def fits(self, body: bytes) -> bool:
        """Return whether the server takes a body of this size; True while that is unknown."""
        client = self._client
        return client is None or len(body) + ENVELOPE_BYTES <= client.max_payload

    def next_orders(self, wait_s: float) -> bytes | None:
        """Return the newest `OrdersReply` that has come since the last call; None if none comes in time.

        Raises:
            ControllerUnreachable, ControllerDenied: there is no connection.
        """
        self._require_client(READY_S)
        with self._changed:
            self._changed.wait_for(lambda: self._orders is not None or not self._ready, wait_s)
            found, self._orders = self._orders, None
            if found is None and not self._ready:
                raise self._trouble
            return found

    def _require_client(self, wait_s: float) -> Client:
        with self._changed:
            self._changed.wait_for(lambda: self._ready, wait_s)
            client = self._client
            if client is None or not self._ready:
                raise self._trouble
            return client

    def _note_sent(self, name: str, sent: Future[None]) -> None:
        error = sent.exception()
        if error is not None:
            self._fail(name, f"not sent: {error!r}")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._stay_connected())
        finally:
            self._http.close()
            self._loop.run_until_complete(asyncio.sleep(0))  # lets transports close
            self._loop.close()

    async def _stay_connected(self) -> None:
        backoff = RetryBackoff()
        while not self._stop.is_set():
            closed = asyncio.Event()
            try:
                client = await self._connect(closed)
            except (NatsError, ControllerError, OSError, asyncio.TimeoutError) as error:
                trouble = await self._loop.run_in_executor(None, self._explain, error)
                self._note_state(None, trouble)
                await _wait(self._stop, backoff.after(trouble))
                continue
            backoff.reset()
            self._note_state(client, None)
            stopping = asyncio.create_task(self._stop.wait())
            closing = asyncio.create_task(closed.wait())
            await asyncio.wait((stopping, closing), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            closing.cancel()
            self._note_state(None, ControllerUnreachable(f"{self.url}: the connection was lost"))
            await client.close()
            await _wait(self._stop, random.uniform(0.0, 1.0))  # noqa: S311 - jitter: a fleet lost it as one

    async def _connect(self, closed: asyncio.Event) -> Client:
        """Connect to one of the servers; another is tried next time. Raises what the library or the token raises."""
        token = await self._loop.run_in_executor(None, self._http.read_token)
        server = random.choice(self._config.servers)  # noqa: S311 - spreads nodes

        async def end() -> None:
            closed.set()

        async def note(error: Exception) -> None:
            _log.debug("NATS: %s", error)

        config = self._config
        trust = TlsCredentials(config.ca_file, config.certificate, config.certificate_key)
        client = Client()
        connecting = client.connect(
            server,
            user=self._node,
            password=token,
            tls=trust.context() if server.startswith("tls://") else None,
            name="healthd",
            allow_reconnect=False,
            connect_timeout=CONNECT_S,
            ping_interval=PING_S,
            max_outstanding_pings=2,
            closed_cb=end,
            error_cb=note,
        )
        try:
            await asyncio.wait_for(connecting, 2 * CONNECT_S)
            _require_connected(client)
            await client.subscribe(f"{self._prefix}.>", cb=self._take)
            await client.flush()
        except BaseException:
            await client.close()
            raise
        return client

    async def _take(self, message: Msg) -> None:
        last = message.subject[len(self._prefix) + 1 :]
        if last == "reply":
            try:
                reply = decode_node_reply(message.data)
            except ValueError as error:
                _log.warning("%s", error)
                return
            self._settle(reply)
        elif last == "orders":
            with self._changed:
                self._orders = message.data
                self._changed.notify_all()
        elif last.startswith("stored."):
            self._read_stored(last.removeprefix("stored."), message)

    def _read_stored(self, name: str, message: Msg) -> None:
        """Fail a request at once if its message was not stored."""
        if message.headers and message.headers.get("Status") == _NO_STREAM:
            self._fail(name, "no stream takes reports; is 'remediator ingest' running for this cluster?")
            return
        with contextlib.suppress(msgspec.DecodeError):
            error = msgspec.json.decode(message.data, type=_Stored).error
            if error is not None:
                self._fail(name, f"not stored: {error.description}")

    def _settle(self, reply: NodeReply) -> None:
        waiting = self._pending.get(reply.id)
        if waiting is not None:
            with contextlib.suppress(InvalidStateError):  # given up just now
                waiting.set_result(reply)

    def _fail(self, name: str, why: str) -> None:
        waiting = self._pending.get(name)
        if waiting is not None:
            with contextlib.suppress(InvalidStateError):  # answered just now
                waiting.set_exception(ControllerUnreachable(f"{self.url}: {why}"))

    def _note_state(self, client: Client | None, trouble: ControllerError | None) -> None:
        with self._changed:
            self._client, self._ready = client, client is not None
            if trouble is not None:
                self._trouble = trouble
            self._changed.notify_all()
        for name in list(self._pending) if client is None else ():
            self._fail(name, "the connection was lost")

    def _explain(self, error: Exception) -> ControllerError:
        """Return what to tell callers. NATS does not say why it refuses a client, so the controller is asked."""
        if isinstance(error, ControllerError):
            return error
        words = f"{self.url}: {str(error) or type(error).__name__}"
        if "authorization" not in words.lower():
            return ControllerUnreachable(words)
        try:
            self._http.orders((), 0)
        except ControllerDenied as denied:
            return denied
        except ControllerError as unknown:
            return ControllerUnreachable(f"{words}; {unknown}")
        return ControllerUnreachable(f"{words}, but the controller admits this node; see the log of the ingest")


def _require_connected(client: Client) -> None:
    """Raise if the server closed the connection at once, which the library does not notice."""
    if not client.is_connected:
        raise ConnectionError("the server closed the connection; is 'remediator ingest' running there?")


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
