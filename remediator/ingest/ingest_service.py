"""Runs `remediator ingest`: delivery workers, the order publisher and the auth callout on one NATS connection."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nats.aio.client import Client
from nats.errors import Error as NatsError

from remediator.ingest import node_authorizer
from remediator.ingest.ingest_config import IngestConfig, IngestConfigError, NatsSettings
from remediator.ingest.leader_client import LeaderClient, LeaderUnavailable
from remediator.ingest.message_delivery import PAUSE_S_MAX, PAUSE_S_MIN, MessageDelivery
from remediator.ingest.message_stream import ensure_stream
from remediator.ingest.node_authorizer import NodeAuthorizer
from remediator.ingest.node_permissions import IssuerKey
from vocabulary.messages.nats_protocol import node_prefix
from vocabulary.messages.wire import OrdersReply, encode_message

ORDERS_REPEATED_S = 10.0  # an open order is published again, for nodes that missed it
COUNTS_LOGGED_S = 60.0
RECONNECT_S = 1.0
THREADS = 96  # workers, the poll for orders, and checks of tokens
CONNECT_S = 5
PING_S = 10  # a silent server counts as lost after two of them

_log = logging.getLogger("remediator.ingest")


def serve_ingest(config: IngestConfig) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        IngestConfigError: a file of the configuration cannot be used.
    """
    asyncio.run(_run(config))


async def _run(config: IngestConfig) -> None:
    signer = _read_issuer(config.nats.issuer_file)
    leader = LeaderClient(config)
    authorizer = NodeAuthorizer(config, leader, signer)
    delivery = MessageDelivery(config, leader)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    stopping = asyncio.create_task(_wait_for_signal())
    counting = asyncio.create_task(_log_counts(delivery))
    while not stopping.done():
        session = asyncio.create_task(_run_session(config, leader, authorizer, delivery))
        await asyncio.wait((stopping, session), return_when=asyncio.FIRST_COMPLETED)
        session.cancel()
        try:
            await session
        except asyncio.CancelledError:
            break
        except (NatsError, OSError, asyncio.TimeoutError) as error:
            _log.warning("NATS %s: %s; connecting again", ", ".join(config.nats.servers), str(error) or repr(error))
            await asyncio.wait((stopping,), timeout=RECONNECT_S)
    counting.cancel()
    leader.close()


async def _run_session(
    config: IngestConfig, leader: LeaderClient, authorizer: NodeAuthorizer, delivery: MessageDelivery
) -> None:
    """Work on one connection until it is lost. The library's own reconnection misses some losses.

    Raises:
        NatsError, OSError, asyncio.TimeoutError: it cannot be had, or was lost.
    """
    lost = asyncio.Event()
    client = await _connect(config.nats, lost)
    tasks: list[asyncio.Task[None]] = []
    try:
        await client.subscribe(node_authorizer.SUBJECT, queue=node_authorizer.QUEUE, cb=authorizer.take)
        await ensure_stream(client, config)
        _log.info("ingest of cluster %s: %s -> %s", config.cluster, config.nats.servers, config.controllers)
        parts = [delivery.run(client) for _ in range(config.workers)]
        parts += [publish_orders(client, config, leader), _raise_once(lost)]
        tasks += [asyncio.create_task(part) for part in parts]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # raises what ended it
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()


async def _raise_once(lost: asyncio.Event) -> None:
    await lost.wait()
    raise ConnectionError("the connection was lost")


async def publish_orders(client: Client, config: IngestConfig, leader: LeaderClient) -> None:
    """Publish all open orders to their nodes when they change, and again every `ORDERS_REPEATED_S`."""
    known, pause_s, trouble = "", PAUSE_S_MIN, ""
    while True:
        try:
            found = await asyncio.to_thread(leader.open_orders, known, ORDERS_REPEATED_S)
            for each in found.nodes:
                subject = f"{node_prefix(config.cluster, each.node)}.orders"
                await client.publish(subject, encode_message(OrdersReply(orders=each.orders)))
            known, pause_s, trouble = found.version, PAUSE_S_MIN, ""
        except LeaderUnavailable as error:
            if not trouble:
                _log.warning("orders cannot be fetched: %s", error)
            known, trouble = "", str(error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)


async def _connect(settings: NatsSettings, lost: asyncio.Event) -> Client:
    """Connect once to one of the servers; sets `lost` when the connection ends. Raises the library's errors."""

    async def note(error: Exception) -> None:
        _log.info("NATS: %s", error)

    async def end() -> None:
        lost.set()

    client = Client()
    connecting = client.connect(
        random.choice(settings.servers),  # noqa: S311 - another one next time
        user=settings.user,
        password=_read_secret(settings.password_file),
        tls=make_tls_context(settings),
        name="remediator ingest",
        allow_reconnect=False,
        connect_timeout=CONNECT_S,
        ping_interval=PING_S,
        max_outstanding_pings=2,
        error_cb=note,
        closed_cb=end,
    )
    try:
        await asyncio.wait_for(connecting, 2 * CONNECT_S)
        _require_connected(client)
    except BaseException:
        await client.close()
        raise
    return client


def _require_connected(client: Client) -> None:
    """Raise if the server closed the connection at once, which the library does not notice."""
    if not client.is_connected:
        raise ConnectionError("the server closed the connection")


def make_tls_context(settings: NatsSettings) -> ssl.SSLContext | None:
    """Return the TLS context; None if the servers' URLs do not ask for TLS.

    Raises:
        IngestConfigError: a file cannot be used.
    """
    if not any(url.startswith("tls://") for url in settings.servers):
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.certificate:
            context.load_cert_chain(settings.certificate, settings.certificate_key)
    except OSError as error:
        raise IngestConfigError(f"nats: ca_file, certificate or certificate_key cannot be used: {error}") from error
    return context


async def _log_counts(delivery: MessageDelivery) -> None:
    while True:
        await asyncio.sleep(COUNTS_LOGGED_S)
        if delivery.counts:
            counts = ", ".join(f"{outcome} {count}" for outcome, count in sorted(delivery.counts.items()))
            _log.info("messages since start: %s", counts)


async def _wait_for_signal() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def _read_issuer(path: str) -> IssuerKey:
    try:
        return IssuerKey.from_text(_read_secret(path))
    except ValueError as error:
        raise IngestConfigError(f"{path}: {error}") from error


def _read_secret(path: str) -> str:
    try:
        return Path(path).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise IngestConfigError(f"{path}: cannot be read ({error})") from error
