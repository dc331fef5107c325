"""Delivers to one receiver: a thread that records what it is about to send, sends it, and records the result.

A batch has an id on disk before its first attempt. So a crash between sending and recording leads to one repetition
under the same id, and a crash before it to none.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace
from sqlalchemy.exc import SQLAlchemyError

from remediator.model.delivery import Delivery, DeliveryState, LeadershipLost, NotificationMessage, NotificationPhase
from remediator.notifications.alertmanager import Alertmanager
from remediator.notifications.delivery_pacing import counts_against_rate, is_due, plan_deliveries, retry_delay_s
from remediator.notifications.envelope import DeliveryAnswer
from remediator.notifications.follow_up_messages import NotificationContext, build_follow_ups
from remediator.notifications.outbox_protocol import OutboxStore
from remediator.notifications.receiver_registry import AnyReceiver
from vocabulary.clock import Clock
from vocabulary.text.plurals import format_count

log = logging.getLogger(__name__)

LOOK_S = 5.0  # how often it checks whether incidents are closed
IDLE_S = 60.0
TROUBLE_S = 5.0
REPEAT_MAX = 200  # alerts in one request
ENDS = SENT, FAILED, GIVEN_UP = "sent", "failed", "given_up"  # how an attempt ends


class DeliveryContext(msgspec.Struct, frozen=True):
    """Inputs of a delivery worker. `context` returns the state of incidents; `quiet_until` the end of quiet hours."""

    name: str
    receiver: AnyReceiver
    store: OutboxStore
    clock: Clock
    context: NotificationContext
    quiet_until: Callable[[float], float]
    give_up_s: float


class DeliveryWorker:
    """Delivers everything to one receiver, so that a slow one delays no other."""

    def __init__(self, way: DeliveryContext) -> None:
        self.counts: dict[str, int] = dict.fromkeys(ENDS, 0)  # attempts in this term
        self._way = way
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._shut_until = 0.0  # monotonic; it is down, or asked us to wait
        self._repeat_at = 0.0  # monotonic
        self._thread = threading.Thread(target=self._run, name=f"tell-{way.name}", daemon=True)

    def start(self) -> None:
        """Start with what an earlier process left."""
        self._thread.start()

    def wake(self) -> None:
        """Check again: something is new."""
        self._wake.set()

    def stop(self) -> None:
        """Start no further attempt."""
        self._stopping.set()
        self._wake.set()

    def join(self) -> None:
        """Wait for the running attempt."""
        if self._thread.is_alive():
            self._thread.join(timeout=self._way.receiver.timeout_s + 5)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                pause = self.turn()
            except LeadershipLost as error:
                log.error("%s: %s", self._way.name, error)
                return
            except SQLAlchemyError as error:
                log.error("notifying %s waits for the database: %s", self._way.name, type(error).__name__)
                pause = TROUBLE_S
            except Exception:
                log.exception("notifying %s failed; this is a bug, please report it", self._way.name)
                pause = TROUBLE_S
            self._wake.wait(pause)

    def turn(self) -> float:
        """Send all that is due. Returns the seconds until there is something to do."""
        way, now = self._way, self._way.clock.wall()
        if not way.context.leads():
            return LOOK_S
        told = way.store.unresolved(way.name)
        said = build_follow_ups(told, way.receiver, way.context, way.quiet_until, now)
        if said:
            way.store.save(said, way.context.epoch())
            told = way.store.unresolved(way.name)  # what is closed must not be repeated after this
        if isinstance(way.receiver, Alertmanager):
            self._repeat(way.receiver, told, now)
        waiting = way.store.waiting(way.name)
        for piece in _started_batches(waiting):
            if self._must_end():
                return LOOK_S
            if is_due(piece[0], now) and not self._shut():
                self._attempt(piece)
        fresh, wake = self._not_silenced([item for item in waiting if not item.batch], now)
        if fresh and not self._shut():
            begun = way.store.begun(way.name, now - way.receiver.rate.per_s)
            found = plan_deliveries(fresh, begun, way.receiver.pace, now)
            wake = min((at for at in (found.wake, wake) if at is not None), default=None)
            for piece in found.pieces:
                if self._must_end() or self._shut():
                    break
                self._attempt(self._begin(piece, now))
        return self._pause(wake)

    def _not_silenced(self, fresh: Sequence[Delivery], now: float) -> tuple[list[Delivery], float | None]:
        """Return what may be sent, and when to check the rest (UTC s). Incidents closed meanwhile are not sent."""
        way, told, changed = self._way, [], []
        for item in fresh:
            silence = way.context.silence_of(item) if item.phase is NotificationPhase.FIRE else None
            if silence is None:
                told.append(item)
            elif not way.context.is_open(item.message.incident):
                why = f"resolved during the silence {silence.id} of {silence.actor}"
                changed.append(replace(item, state=DeliveryState.ABANDONED, detail=why))
            elif item.free_at != silence.until:
                changed.append(replace(item, free_at=silence.until))  # the retry limit starts only then
        if changed:
            way.store.save(changed, way.context.epoch())
        over = sum(item.state is DeliveryState.ABANDONED for item in changed)
        return told, now + LOOK_S if len(told) + over < len(fresh) else None

    def _shut(self) -> bool:
        return self._way.clock.monotonic() < self._shut_until

    def _must_end(self) -> bool:
        return self._stopping.is_set() or not self._way.context.leads()

    def _pause(self, wake: float | None) -> float:
        now = self._way.clock.wall()
        left, told = self._way.store.waiting(self._way.name), self._way.store.unresolved(self._way.name)
        shut_for = self._shut_until - self._way.clock.monotonic()
        pauses = [max(item.due - now, shut_for) for item in left if item.batch]
        if any(not item.batch for item in left):
            pauses.append(max((wake or now) - now, shut_for))
        if told and self._way.receiver.REPEATS:
            pauses.append(self._repeat_at - self._way.clock.monotonic())
        pause = max(0.0, min([*pauses, IDLE_S]))
        return min(pause, LOOK_S) if told or left else pause

    def _begin(self, piece: Sequence[Delivery], now: float) -> tuple[Delivery, ...]:
        """Give the batch its id, durably."""
        receiver = self._way.receiver
        batch = "msg_" + hashlib.sha256("\n".join(item.id for item in piece).encode()).hexdigest()[:24]
        alone = len({item.message.incident for item in piece}) == 1
        claimed_at = now if counts_against_rate(piece, receiver.pace) else 0.0
        later = any(item.message.update for item in piece)
        known = (
            {each.message.incident: each.thread for each in self._way.store.unresolved(self._way.name)} if later else {}
        )

        def thread(item: Delivery) -> str:
            if receiver.REPEATS:
                return item.message.id
            if item.message.incident in known and (alone or not receiver.LIFE_CYCLE):
                return known[item.message.incident]
            return item.message.incident if alone or not receiver.LIFE_CYCLE else batch

        named = tuple(
            replace(
                item,
                batch=batch,
                claimed_at=claimed_at,
                thread=item.thread or thread(item),
                free_at=min(item.free_at, now),  # the silence may have been ended early
            )
            for item in piece
        )
        self._way.store.save(named, self._way.context.epoch())
        return named

    def _attempt(self, piece: Sequence[Delivery]) -> None:
        way, now = self._way, self._way.clock.wall()
        try:
            answer = way.receiver.send(way.receiver.envelope(piece[0].batch, tuple(piece), now))
        except Exception as error:
            log.exception("notifying %s failed; this is a bug, please report it", way.name)
            answer = DeliveryAnswer(
                False, f"internal error: {type(error).__name__}", refused=True
            )  # other messages still get through
        attempts = piece[0].attempts + 1
        if answer.taken:
            self._shut_until = 0.0
            self.counts[SENT] += 1
            changed = [
                replace(
                    item,
                    state=DeliveryState.SENT,
                    sent_at=now,
                    attempts=attempts,
                    detail=answer.words,
                    settled=not way.receiver.resolved,
                )
                for item in piece
            ]
            log.info("notified %s of %s: %s", way.name, ", ".join(item.message.id for item in piece[:3]), answer.words)
        else:
            changed = self._put_off(piece, answer, attempts)
        way.store.save(changed, way.context.epoch())

    def _put_off(self, piece: Sequence[Delivery], answer: DeliveryAnswer, attempts: int) -> list[Delivery]:
        way, now = self._way, self._way.clock.wall()
        wait = retry_delay_s(attempts, answer.retry_after_s, piece[0].batch, refused=answer.refused)
        if answer.down:
            self._shut_until = way.clock.monotonic() + wait
        over = now - min(item.tellable_at for item in piece) >= way.give_up_s
        state = DeliveryState.ABANDONED if over else DeliveryState.WAITING
        self.counts[GIVEN_UP if over else FAILED] += 1
        what = (
            f"given up after {format_count(attempts, 'attempt')}"
            if over
            else f"attempt {attempts} failed, next in {wait:.0f} s"
        )
        log.log(logging.ERROR if over else logging.WARNING, "notifying %s: %s: %s", way.name, what, answer.words)
        return [replace(item, state=state, due=now + wait, attempts=attempts, detail=answer.words) for item in piece]

    def _repeat(self, receiver: Alertmanager, told: Sequence[Delivery], now: float) -> None:
        """Repeat what is still active. Level-triggered, so a lost repetition does not matter."""
        if not told or self._shut() or self._way.clock.monotonic() < self._repeat_at:
            return
        self._repeat_at = self._way.clock.monotonic() + receiver.repeat_s
        latest = latest_per_matter(told)
        for first in range(0, len(latest), REPEAT_MAX):
            answer = receiver.repeat(latest[first : first + REPEAT_MAX], now)
            if not answer.taken:
                log.warning("%s did not receive the repeated alerts: %s", self._way.name, answer.words)
                return


def latest_per_matter(told: Sequence[Delivery]) -> list[Delivery]:
    """Return the last message of each alert: an earlier one would replace newer text."""
    last = {_matter_key(item.message): item for item in told}
    return [item for item in told if last[_matter_key(item.message)] is item]


def _matter_key(message: NotificationMessage) -> tuple[str, ...]:
    return (message.kind, message.node, message.incident, message.rule, message.severity.value)


def _started_batches(waiting: Sequence[Delivery]) -> list[tuple[Delivery, ...]]:
    """Return batches that have an id, each in its order then."""
    pieces: dict[str, list[Delivery]] = {}
    for item in waiting:
        if item.batch:
            pieces.setdefault(item.batch, []).append(item)
    return [tuple(piece) for piece in pieces.values()]
