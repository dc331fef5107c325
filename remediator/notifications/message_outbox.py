"""The outbox: stores a message for each of its receivers, then their delivery workers send it."""

from __future__ import annotations

import logging
import threading

from msgspec.structs import replace

from remediator.model.delivery import Delivery, NotificationMessage
from remediator.notifications.alert_routes import match_receivers
from remediator.notifications.alert_settings import AlertHeartbeat, AlertSettings
from remediator.notifications.alertmanager import LIVES_REPEATS, Alertmanager
from remediator.notifications.delivery_worker import DeliveryContext, DeliveryWorker
from remediator.notifications.envelope import DeliveryAnswer
from remediator.notifications.follow_up_messages import NotificationContext
from remediator.notifications.http_post import HttpPostRequest, send_http_post
from remediator.notifications.outbox_protocol import OutboxStore
from remediator.notifications.quiet_hours import quiet_hours_end
from remediator.notifications.receiver import read_receiver_url
from remediator.notifications.secret_files import SecretError
from vocabulary.clock import Clock

log = logging.getLogger(__name__)
KEPT_S = 30 * 86400.0  # how long sent messages are kept
TIDY_S = 86400.0


class MessageOutbox:
    """All messages in delivery. Only the leader starts it."""

    def __init__(self, telling: AlertSettings, store: OutboxStore, cluster: str, clock: Clock) -> None:
        self._telling = telling
        self._store = store
        self._cluster = cluster
        self._clock = clock
        self._receivers = telling.everyone
        self._ways = telling.ways
        self._couriers: dict[str, DeliveryWorker] = {}
        self._stopping = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._context: NotificationContext | None = None
        self._tidied_at = 0.0

    def start(self, context: NotificationContext) -> None:
        """Continue the deliveries of earlier leaders, and start heartbeats."""
        self._context = context
        self._tidy(self._clock.wall())
        for name, count in self._store.left_for().items():
            if name not in self._receivers:
                log.error("%d messages wait for the receiver '%s', which is no longer configured", count, name)
        for name, receiver in self._receivers.items():
            way = DeliveryContext(
                name, receiver, self._store, self._clock, context, self._quiet_until, self._telling.give_up_s
            )
            self._couriers[name] = DeliveryWorker(way)
            self._couriers[name].start()
        if self._telling.heartbeat is not None:
            self._beating.start()

    def stop(self) -> None:
        """Stop delivering; waiting messages stay stored."""
        self._stopping.set()
        for courier in self._couriers.values():
            courier.stop()
        for courier in self._couriers.values():
            courier.join()
        if self._beating.is_alive():
            self._beating.join(timeout=15)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how attempts to each receiver ended in this term, by its name."""
        return {name: dict(courier.counts) for name, courier in self._couriers.items()}

    def wake(self) -> None:
        """Wake every delivery worker: a silence has begun or ended."""
        for courier in list(self._couriers.values()):
            courier.wake()

    def put(self, message: NotificationMessage, kinds: tuple[str, ...] = ()) -> dict[str, float]:
        """Store a message for its receivers. Returns their names, each with the end of its quiet hours (0: none).

        `kinds` are those of its findings. Durable on return; a known id changes nothing.
        """
        now = self._clock.wall()
        deliveries = [
            replace(self._delivery(message, name, now), kinds=kinds) for name in match_receivers(message, self._ways)
        ]
        self._store.add(deliveries)
        self._tidy(now)
        for delivery in deliveries:
            if delivery.receiver in self._couriers:
                self._couriers[delivery.receiver].wake()
        return {delivery.receiver: delivery.not_before for delivery in deliveries}

    def _tidy(self, now: float) -> None:
        if now - self._tidied_at > TIDY_S:
            self._tidied_at = now
            self._store.forget(now - KEPT_S)

    def _delivery(self, message: NotificationMessage, name: str, now: float) -> Delivery:
        receiver = self._receivers[name]
        quiet = 0.0 if message.page or not receiver.quiet_hours else self._quiet_until(now)
        waits = quiet if quiet > now else 0.0
        due = now if message.page else max(waits, now + receiver.group_s)
        return Delivery(
            id=f"{message.id}@{name}", receiver=name, message=message, created_at=now, not_before=waits, due=due
        )

    def _quiet_until(self, at: float) -> float:
        return quiet_hours_end(self._telling.quiet_hours, at)

    def _beat(self) -> None:
        heartbeat, context = self._telling.heartbeat, self._context
        if heartbeat is None or context is None:
            return
        while not self._stopping.is_set():
            if context.leads():  # a controller that cannot decide must not look alive
                answer = self._one_beat(heartbeat)
                if not answer.taken:
                    log.warning("heartbeat: %s", answer.words)
            self._stopping.wait(heartbeat.every_s)

    def _one_beat(self, heartbeat: AlertHeartbeat) -> DeliveryAnswer:
        receiver = self._receivers.get(heartbeat.receiver)
        if isinstance(receiver, Alertmanager):
            return receiver.heartbeat(self._cluster, self._clock.wall(), LIVES_REPEATS * heartbeat.every_s)
        try:
            url = read_receiver_url(heartbeat.url, heartbeat.url_file)
        except SecretError as error:
            return DeliveryAnswer(False, str(error))
        return send_http_post(HttpPostRequest(url, b"", {}, heartbeat.ca_file), heartbeat.timeout_s)
