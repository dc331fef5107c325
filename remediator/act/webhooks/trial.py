"""A message that tries a receiver out, past the outbox."""

from __future__ import annotations

from collections.abc import Iterator

from remediator.act.webhooks.envelope import Answer
from remediator.act.webhooks.registry import AnyReceiver
from remediator.act.webhooks.telling import Telling
from remediator.model.delivery import Delivery, Message, Phase
from vocabulary.finding import Severity


def try_out(telling: Telling, cluster: str, name: str, said_by: str, now: float) -> Iterator[tuple[Phase, Answer]]:
    """Send one test message; a receiver that keeps matters open is told at once that it is over. Yields what came of it.

    Args:
        telling: the configuration, which has this receiver.
        cluster: its name.
        name: the receiver's.
        said_by: by whom or what it is sent, for the text.
        now: UTC seconds.

    Raises:
        KeyError: there is no such receiver.
    """
    receiver = telling.everyone[name]
    keeps = receiver.resolved and (receiver.LIFE_CYCLE or receiver.REPEATS)
    for phase in (Phase.FIRE, Phase.RESOLVE) if keeps else (Phase.FIRE,):
        answer = _send(receiver, _message(telling, cluster, said_by, now), name, phase, now)
        yield phase, answer
        if not answer.taken:
            return


def _message(telling: Telling, cluster: str, said_by: str, now: float) -> Message:
    return Message(
        id=f"test-{int(now)}",
        kind="alert",
        cluster=cluster,
        node="test-node",
        incident=f"test-{cluster}",
        title="this is a test",
        rule="test",
        text=f"sent by {said_by}; nothing is wrong",
        injected=True,
        severity=Severity.INFO,
        at=now,
        link=telling.public_url,
    )


def _send(receiver: AnyReceiver, message: Message, name: str, phase: Phase, now: float) -> Answer:
    item = Delivery(id=message.id, receiver=name, message=message, phase=phase, created_at=now, thread=message.incident)
    return receiver.send(receiver.envelope(f"msg_test{int(now)}{phase.value}", (item,), now))
