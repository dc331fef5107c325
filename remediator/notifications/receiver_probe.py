"""Tests a receiver with a message that bypasses the outbox."""

from __future__ import annotations

from collections.abc import Iterator

from remediator.model.delivery import Delivery, NotificationMessage, NotificationPhase
from remediator.notifications.alert_settings import AlertSettings
from remediator.notifications.envelope import DeliveryAnswer
from remediator.notifications.receiver_registry import AnyReceiver
from vocabulary.finding import Severity


def send_test_messages(
    telling: AlertSettings, cluster: str, name: str, said_by: str, now: float
) -> Iterator[tuple[NotificationPhase, DeliveryAnswer]]:
    """Send one test message, and resolve it at once where receivers keep alerts open. Yields the results.

    Args:
        telling: the configuration, which has this receiver.
        cluster: its name.
        name: the receiver's.
        said_by: the sender, for the text.
        now: UTC seconds.

    Raises:
        KeyError: there is no such receiver.
    """
    receiver = telling.everyone[name]
    keeps = receiver.resolved and (receiver.LIFE_CYCLE or receiver.REPEATS)
    for phase in (NotificationPhase.FIRE, NotificationPhase.RESOLVE) if keeps else (NotificationPhase.FIRE,):
        answer = _send_test_phase(receiver, _build_test_message(telling, cluster, said_by, now), name, phase, now)
        yield phase, answer
        if not answer.taken:
            return


def _build_test_message(telling: AlertSettings, cluster: str, said_by: str, now: float) -> NotificationMessage:
    return NotificationMessage(
        id=f"test-{int(now)}",
        kind="alert",
        cluster=cluster,
        node="test-node",
        incident=f"test-{cluster}",
        title="this is a test message",
        rule="test",
        text=f"sent by {said_by}; no action is needed",
        injected=True,
        severity=Severity.INFO,
        at=now,
        link=telling.public_url,
    )


def _send_test_phase(
    receiver: AnyReceiver, message: NotificationMessage, name: str, phase: NotificationPhase, now: float
) -> DeliveryAnswer:
    item = Delivery(id=message.id, receiver=name, message=message, phase=phase, created_at=now, thread=message.incident)
    return receiver.send(receiver.envelope(f"msg_test{int(now)}{phase.value}", (item,), now))
