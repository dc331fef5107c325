"""Accepts connections: limits on open ones in total and per owner, TLS from the current files, and the HTTP protocol."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from remediator.server_config import AccessLimits, TlsSettings
from remediator.serving.connection_limits import AuthenticatedConnections, UnknownConnection, UnknownConnections
from remediator.serving.http_protocol import BoundedHttpProtocol
from remediator.store.database import StoreError

log = logging.getLogger(__name__)

BACKLOG = 16_384  # all nodes may connect at once; the kernel's somaxconn may allow less
ACCEPT_AT_ONCE = 1000  # per turn of the loop: turns are long under load, and new connections wait for them
FILES = 131_072  # 12 500 nodes keep 25 000 connections
NO_MORE_FILES_S = 1.0  # pause when this process may open no more files


def raise_file_limit() -> None:
    """Raise the limit of open files to the maximum: containers often start with a thousand, and each node needs two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Listener:
    """The listening sockets. TLS is done here, so that each connection uses the certificate files as they are then."""

    def __init__(
        self,
        address: tuple[str, int],
        tls: TlsSettings | None,
        limits: AccessLimits,
        make_protocol: Callable[[], BoundedHttpProtocol],
    ) -> None:
        """Create a listener; `speak` makes the protocol of one connection.

        Raises:
            StoreError: a file of `tls` cannot be used.
        """
        self.guests = UnknownConnections(limits.strangers_per_address, limits.strangers, time.monotonic)
        self.members = AuthenticatedConnections()
        self._address = address
        self._tls = tls
        self._context = None if tls is None else tls_context(tls)
        self._trusted = _client_authorities(tls)
        self._trust = 0  # counts changes of the trusted authorities
        self._headers_s = limits.headers_s
        self._make_protocol = make_protocol
        self._sockets: list[socket.socket] = []
        self._greeting: set[asyncio.Task[None]] = set()

    @property
    def listening(self) -> bool:
        """Whether connections are accepted."""
        return bool(self._sockets)

    @property
    def port(self) -> int:
        """The port, also where the configuration left it open (0)."""
        return int(self._sockets[0].getsockname()[1])

    def bind(self) -> None:
        """Listen; connections wait until `open`.

        Raises:
            StoreError: the address cannot be used.
        """
        host, port = self._address
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, place in dict.fromkeys((info[0], info[4]) for info in found):
                here = socket.create_server((str(place[0]), int(place[1])), family=family, backlog=BACKLOG)
                here.setblocking(False)
                self._sockets.append(here)
        except OSError as error:
            for here in self._sockets:
                here.close()
            raise StoreError(f"listen {host}:{port}: {error.strerror or error}") from error

    def open(self) -> None:
        """Accept connections on the running loop."""
        for here in self._sockets:
            self._listen(here)

    def close(self) -> None:
        """Accept no more connections; open ones stay."""
        for here in self._sockets:
            asyncio.get_running_loop().remove_reader(here)
            here.close()
        self._sockets.clear()

    def read_certificate(self) -> None:
        """Reload the files for new connections; if they are invalid, the old ones stay in use.

        If the trusted authorities have changed, older connections close after their next response.
        """
        if self._tls is None:
            return
        try:
            self._context, trusted = tls_context(self._tls), _client_authorities(self._tls)
        except StoreError as error:
            log.error("%s; the previous certificate stays in force", error)
            return
        if trusted != self._trusted:
            self._trusted = trusted
            self._trust += 1
        log.info("the certificate %s was reloaded", self._tls.certificate)

    def _listen(self, here: socket.socket) -> None:
        if here.fileno() >= 0:
            asyncio.get_running_loop().add_reader(here, self._accept, here)

    def _accept(self, here: socket.socket) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                connection, peer = here.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("cannot accept connections: %s; raise LimitNOFILE if that is the limit", error.strerror)
                loop = asyncio.get_running_loop()
                loop.remove_reader(here)
                loop.call_later(NO_MORE_FILES_S, self._listen, here)
                return
            connection.setblocking(False)
            self._greet(connection, str(peer[0]))

    def _greet(self, connection: socket.socket, address: str) -> None:
        guest = self.guests.enter(address)
        if guest is None:
            connection.close()
            return
        task = asyncio.get_running_loop().create_task(self._welcome(connection, guest))
        guest.leave = task.cancel
        self._greeting.add(task)
        task.add_done_callback(self._greeting.discard)

    async def _welcome(self, connection: socket.socket, guest: UnknownConnection) -> None:
        protocol, trust = self._make_protocol(), self._trust
        protocol.headers_s = self._headers_s
        protocol.seen = partial(self._seen, guest, protocol)
        protocol.gone = partial(self._gone, guest, protocol)
        protocol.stale = lambda: trust != self._trust
        within_s = None if self._context is None else self._headers_s
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, connection, ssl=self._context, ssl_handshake_timeout=within_s
            )
        except (OSError, asyncio.TimeoutError) as error:  # ssl's errors are OSErrors
            log.debug("%s: connection failed: %s", guest.address, error)
            self.guests.forget(guest)
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise
        else:
            guest.leave = transport.abort

    def _seen(self, guest: UnknownConnection, protocol: BoundedHttpProtocol, whose: str, most: int) -> bool:
        if not self.members.enter(protocol, whose, most):
            return False
        self.guests.forget(guest)
        return True

    def _gone(self, guest: UnknownConnection, protocol: BoundedHttpProtocol) -> None:
        self.guests.forget(guest)
        self.members.forget(protocol)


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """Build the TLS context from the current files, TLS 1.2 or newer.

    Raises:
        StoreError: a file cannot be read, or does not belong to a certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.client_ca:
            context.load_verify_locations(tls.client_ca)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (tls.certificate, tls.key, tls.client_ca)))
        raise StoreError(f"tls: {files}: {error.strerror or error}") from error
    context.verify_mode = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL}.get(
        tls.client_certificate, ssl.CERT_REQUIRED
    )
    return context


def _client_authorities(tls: TlsSettings | None) -> bytes:
    """Return the authorities for client certificates, from their file."""
    return Path(tls.client_ca).read_bytes() if tls is not None and tls.client_ca else b""
