"""The JetStream stream between nodes and the leader, and how an ingest process takes messages from it.

Each subject holds one message: a newer report replaces an older one, which it contains. So no node can fill the stream.
The stream is a work queue: a message leaves it once it is acknowledged.
"""

from __future__ import annotations

import asyncio
import json

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError

from remediator.ingest.ingest_config import IngestConfig
from remediator.model.message_batch import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX
from vocabulary.messages.nats_protocol import ENVELOPE_BYTES, stream_name, stream_subjects
from vocabulary.messages.wire import REPORT_BYTES_MAX

CONSUMER = "ingest"
ACK_WAIT_S = 60.0  # longer than any answer of the leader takes
PENDING_MAX = 20_000
GATHER_S = 0.05  # a request per message would cost the leader more than the message
LINGER_S = 5.0  # a request for the next message, without one
MESSAGE_BYTES_MAX = REPORT_BYTES_MAX + ENVELOPE_BYTES
PULL_BYTES_MAX = BATCH_BYTES_MAX - MESSAGE_BYTES_MAX  # behind one message of any size
_NO_RESPONDERS = "503"


class StreamMissing(Exception):
    """The stream or its consumer does not exist, or no server of it answers."""


async def ensure_stream(client: Client, config: IngestConfig) -> None:
    """Create the stream and its consumer, or bring them to this configuration. Raises the library's errors."""
    jetstream, name = client.jetstream(), stream_name(config.cluster)
    wanted = StreamConfig(
        name=name,
        subjects=stream_subjects(config.cluster),
        retention=RetentionPolicy.WORK_QUEUE,
        discard=DiscardPolicy.NEW,
        storage=StorageType.FILE,
        max_msgs_per_subject=1,
        max_msg_size=MESSAGE_BYTES_MAX,
        max_bytes=config.nats.stream_bytes,
        max_age=config.nats.stream_age_s,
        num_replicas=config.nats.replicas,
        duplicate_window=min(120.0, config.nats.stream_age_s),
    )
    try:
        await jetstream.add_stream(wanted)
    except BadRequestError:  # it exists with another configuration
        await jetstream.update_stream(wanted)
    consumer = ConsumerConfig(
        durable_name=CONSUMER, ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT_S, max_ack_pending=PENDING_MAX
    )
    await jetstream.add_consumer(name, consumer)


class BatchPuller:
    """Takes batches of messages for one worker."""

    def __init__(self, client: Client, cluster: str) -> None:
        self._client = client
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream_name(cluster)}.{CONSUMER}"
        self._inbox = client.new_inbox()
        self._messages: Subscription | None = None

    async def next_batch(self) -> list[Msg]:
        """Return what is there, at most `BATCH_MESSAGES_MAX`; waits a little for the first.

        Raises:
            StreamMissing: create it first.
        """
        found = await self._pull({"batch": 1, "expires": int(LINGER_S * 1e9)}, 1, LINGER_S + 1.0)
        if found:
            await asyncio.sleep(GATHER_S)
            found += await self._pull_at_once(BATCH_MESSAGES_MAX - 1)
        return found

    async def _pull_at_once(self, most: int) -> list[Msg]:
        return await self._pull({"batch": most, "max_bytes": PULL_BYTES_MAX, "no_wait": True}, most, LINGER_S)

    async def _pull(self, request: dict[str, int], most: int, wait_s: float) -> list[Msg]:
        """Ask once, and collect until a status ends it. What a lost connection left over is collected by the next call."""
        if self._messages is None:
            self._messages = await self._client.subscribe(self._inbox)
        await self._client.publish(self._next, json.dumps(request).encode(), reply=self._inbox)
        found: list[Msg] = []
        while len(found) < most:
            try:
                message = await self._messages.next_msg(wait_s)
            except NatsTimeoutError:
                break
            status = message.headers.get("Status") if message.headers else None
            if status == _NO_RESPONDERS:
                raise StreamMissing("no JetStream consumer answers")
            if status:
                break
            found.append(message)
        return found
