"""Answers heartbeats from the connection itself, without a task, a request or a response object: most of what a fleet sends.

It accepts only what needs no other answer than 200, under the same rules as the route: the node's own valid token and
certificate, its limits, and a heartbeat that updates its last report. Everything else takes the usual way through the
application, which checks again and says what is wrong.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from remediator.api.handler_context import HandlerContext, Refusal
from remediator.api.report_handlers import take_heartbeat
from remediator.model.credentials import Role


class HeartbeatConnection(Protocol):
    """The connection that a heartbeat came over."""

    certificate_names: tuple[str, ...]

    def admit(self, whose: str, most: int) -> bool:
        """Note the connection's owner, by the token's id; return whether it may have another connection."""


class HeartbeatLane:
    """The heartbeats of one leader."""

    def __init__(self, service: HandlerContext) -> None:
        self._service = service
        tls = service.config.tls
        self._by_certificate = tls is not None and tls.nodes_by_certificate

    def answer(self, connection: HeartbeatConnection, node: str, token: str, body: bytes, begun: float) -> bytes | None:
        """Apply a heartbeat and return the whole HTTP response; None if it must take the usual way.

        Args: `begun`: when its first bytes arrived, monotonic s; the others are parts of the request.
        """
        service = self._service
        identity = service.tokens.identify(token)
        if identity is None or identity.role is not Role.NODE or identity.name != node:
            return None
        if self._by_certificate and node not in connection.certificate_names:
            return None
        if not connection.admit(identity.id, service.gate.limits.connections_per_node):
            return None
        if service.gate.nodes.wait_s(identity.id) > 0:
            return None
        try:
            reply = msgspec.json.encode(take_heartbeat(service, node, body, begun))
        except Refusal:
            return None
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
            len(reply),
            reply,
        )
