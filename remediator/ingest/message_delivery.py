"""Delivers nodes' messages to the leader in batches, and its answers to the nodes.

A message is acknowledged after the leader's answer, which comes after the message is durable. One that the leader
cannot take now is delivered again later. One that it rejects is not: its node gets the problem, and decides.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from typing import NamedTuple

from nats.aio.client import Client
from nats.aio.msg import Msg

from remediator.ingest.ingest_config import IngestConfig
from remediator.ingest.leader_client import LeaderClient, LeaderUnavailable
from remediator.ingest.message_stream import BatchPuller, StreamMissing, ensure_stream
from remediator.model.message_batch import RETRY_LATER, DeliveredMessage, MessageAnswer
from vocabulary.messages.nats_protocol import (
    NodeReply,
    decode_node_message,
    encode_envelope,
    node_prefix,
    read_upward_subject,
)
from vocabulary.messages.wire import Problem, encode_message

PAUSE_S_MIN, PAUSE_S_MAX = 0.5, 5.0  # between tries while no replica leads
ACK, TERM = b"+ACK", b"+TERM"

_log = logging.getLogger("remediator.ingest")


class _Taken(NamedTuple):
    """A message of the stream, read."""

    ack_subject: str
    id: str
    message: DeliveredMessage


class MessageDelivery:
    """The delivery workers of this process. `counts`: messages by outcome."""

    def __init__(self, config: IngestConfig, leader: LeaderClient) -> None:
        self._config, self._leader = config, leader
        self._trouble = ""
        self._pulling = asyncio.Lock()
        self.counts: Counter[str] = Counter()

    async def run(self, client: Client) -> None:
        """Run one worker until cancelled. Raises the library's errors: the connection is of no more use."""
        puller = BatchPuller(client, self._config.cluster)
        pause_s = PAUSE_S_MIN
        while True:
            try:
                async with self._pulling:  # one at a time, or each gets a part of a batch
                    messages = await puller.next_batch()
            except StreamMissing as error:  # of a server whose disk was replaced
                self._note_trouble(f"the stream cannot be read: {error}")
                await asyncio.sleep(PAUSE_S_MIN)
                await ensure_stream(client, self._config)
                continue
            if await self.deliver(client, messages, pause_s):
                pause_s = PAUSE_S_MIN
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def deliver(self, client: Client, messages: list[Msg], pause_s: float) -> bool:
        """Deliver one batch and settle each message. False: no replica took it, so it comes again after `pause_s`."""
        batch = [taken for message in messages if (taken := await self._read(client, message)) is not None]
        if not batch:
            return True
        try:
            answers = await asyncio.to_thread(self._leader.deliver, [taken.message for taken in batch])
        except LeaderUnavailable as error:
            self._note_trouble(f"messages cannot be delivered: {error}")
            for taken in batch:
                await client.publish(taken.ack_subject, _encode_nak(pause_s))
            self.counts["delayed"] += len(batch)
            return False
        if self._trouble:
            _log.info("messages are delivered again")
            self._trouble = ""
        for taken, answer in zip(batch, answers, strict=True):
            await self._settle(client, taken, answer)
        return True

    async def _read(self, client: Client, message: Msg) -> _Taken | None:
        """Return the message; None if it is malformed, after it was answered and removed from the stream."""
        node = ""
        try:
            kind, node = read_upward_subject(message.subject, self._config.cluster)
            envelope = decode_node_message(message.data)
        except ValueError as error:
            _log.warning("a message on %s is dropped: %s", message.subject[:200], error)
            if node:
                await self._reply(client, node, NodeReply("", 400, encode_message(Problem(error=str(error)))))
            await client.publish(message.reply, TERM)
            self.counts["malformed"] += 1
            return None
        return _Taken(message.reply, envelope.id, DeliveredMessage(node, kind, envelope.body))

    async def _settle(self, client: Client, taken: _Taken, answer: MessageAnswer) -> None:
        """Reply first: if this process dies in between, the message comes again and changes nothing."""
        if answer.status == RETRY_LATER:
            await client.publish(taken.ack_subject, _encode_nak(max(answer.retry_after_s, PAUSE_S_MIN)))
            self.counts["delayed"] += 1
            return
        reply = NodeReply(taken.id, answer.status, answer.body, answer.retry_after_s)
        await self._reply(client, taken.message.node, reply)
        taken_by_leader = 200 <= answer.status < 300
        await client.publish(taken.ack_subject, ACK if taken_by_leader else TERM)
        self.counts["accepted" if taken_by_leader else "rejected"] += 1

    async def _reply(self, client: Client, node: str, reply: NodeReply) -> None:
        await client.publish(f"{node_prefix(self._config.cluster, node)}.reply", encode_envelope(reply))

    def _note_trouble(self, trouble: str) -> None:
        """Log a new trouble once; an outage has many failures."""
        if trouble != self._trouble:
            _log.warning("%s", trouble)
            self._trouble = trouble


def _encode_nak(delay_s: float) -> bytes:
    return b"-NAK " + json.dumps({"delay": int(delay_s * 1e9)}).encode()
