"""Answers NATS' auth callout: a node connects with its own token, and may use only its own subjects.

The leader decides about the token. While none answers, a token that it admitted lately is admitted again, so that an
outage of the controller does not cut nodes off NATS; the leader checks each message's node again anyway.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time

from nats.aio.msg import Msg

from remediator.ingest.ingest_config import IngestConfig
from remediator.ingest.leader_client import LeaderClient, LeaderUnavailable
from remediator.ingest.node_permissions import (
    CalloutRequest,
    IssuerKey,
    make_callout_response,
    make_node_jwt,
    read_callout_request,
)
from vocabulary.identity import require_node_name

SUBJECT = "$SYS.REQ.USER.AUTH"
QUEUE = "ingest"
VALID_S = 3600.0  # of a connection; the node then connects again, with its token of that time
REMEMBERED_S = 3600.0
REMEMBERED_MAX = 200_000
AT_ONCE = 16

_log = logging.getLogger("remediator.ingest")


class NodeAuthorizer:
    """Answers authorization requests."""

    def __init__(self, config: IngestConfig, leader: LeaderClient, signer: IssuerKey) -> None:
        self._config, self._leader, self._signer = config, leader, signer
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._admitted: dict[tuple[str, str], float] = {}  # node and digest of its token: until when, monotonic
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, message: Msg) -> None:
        """Answer a request in a task of its own: the next one must not wait for the leader."""
        task = asyncio.create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Msg) -> None:
        try:
            request = read_callout_request(message.data)
        except ValueError as error:
            _log.warning("%s", error)
            return
        async with self._turns:
            trouble = await self.find_refusal(request)
        now, user_jwt = time.time(), ""
        if trouble:
            _log.warning("%s", trouble)
        else:
            valid_s = VALID_S * random.uniform(0.5, 1.0)  # noqa: S311 - a fleet must not reconnect as one
            user_jwt = make_node_jwt(
                self._signer,
                request,
                cluster=self._config.cluster,
                account=self._config.nats.account,
                now=now,
                valid_s=valid_s,
            )
        await message.respond(make_callout_response(self._signer, request, user_jwt=user_jwt, error=trouble, now=now))

    async def find_refusal(self, request: CalloutRequest) -> str:
        """Return why this client may not connect; empty if it may."""
        try:
            node = require_node_name(request.user)
        except ValueError as error:
            return str(error)
        token = request.password
        if not token or not token.isascii() or not token.isprintable():
            return f"node {node} sent no token"
        key = (node, hashlib.sha256(token.encode()).hexdigest())
        try:
            admitted = await asyncio.to_thread(self._leader.admits, node, token)
        except LeaderUnavailable as error:
            if self._admitted.get(key, 0.0) > time.monotonic():
                return ""
            return f"the token of node {node} cannot be checked: {error}"
        if not admitted:
            self._admitted.pop(key, None)
            return f"the controller does not admit this token for node {node}"
        if len(self._admitted) >= REMEMBERED_MAX:
            self._admitted.clear()
        self._admitted[key] = time.monotonic() + REMEMBERED_S
        return ""
