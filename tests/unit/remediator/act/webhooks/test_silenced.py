"""What is silenced waits on the disk, is told when the silence ends, and is let go of where it is over by then."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from remediator.model.delivery import Delivery, DeliveryState, NotificationPhase
from remediator.model.override_records import AlertSilence
from remediator.notifications.delivery_worker import DeliveryContext, DeliveryWorker
from remediator.notifications.follow_up_messages import NotificationContext
from remediator.notifications.standard_webhooks import PlainWebhook
from remediator.store.delivery_store import DeliveryStore
from tests.unit.remediator.act.webhooks.peer import AT, Peer, delivery
from vocabulary.clock import ManualClock

SILENCE = AlertSilence("sil-1", "*", "*", AT, AT + 3600, "ann", "we know")


class Cluster:
    """One courier to one peer, turned by hand."""

    def __init__(self, store: DeliveryStore, peer: Peer) -> None:
        self.silenced = {"fan/slow"}
        self.silence = SILENCE
        self.open = {"inc-1", "inc-2"}
        self.store = store
        standing = NotificationContext(
            epoch=lambda: 1,
            is_open=lambda incident: incident in self.open,
            is_taken_up=lambda _incident: False,
            leads=lambda: True,
            silence_of=self._silence_of,
        )
        clock = self.clock = ManualClock(AT + 60)
        receiver = PlainWebhook(url=peer.url, resolved=True)
        self.courier = DeliveryWorker(DeliveryContext("r", receiver, store, clock, standing, lambda at: at, 3600.0))

    def _silence_of(self, item: Delivery) -> AlertSilence | None:
        return self.silence if self.silenced.issuperset(item.kinds) else None

    def states(self) -> dict[str, DeliveryState]:
        return {
            item.message.incident: item.state for item in self.store.latest(9) if item.phase is NotificationPhase.FIRE
        }


def test_it_waits_without_a_moments_work_and_is_told_when_the_silence_ends(store: DeliveryStore, peer: Peer) -> None:
    cluster = Cluster(store, peer)
    store.add([replace(delivery(1), kinds=("fan/slow",)), replace(delivery(2), kinds=("fan/slow", "xid/79"))])
    pause = cluster.courier.turn()
    assert cluster.states() == {"inc-1": DeliveryState.WAITING, "inc-2": DeliveryState.SENT}
    assert len(peer.got) == 1
    assert pause > 1.0, "it is asked about again, but not all the time"
    assert cluster.courier.turn() > 1.0
    cluster.silenced = set()
    cluster.courier.turn()
    assert cluster.states() == {"inc-1": DeliveryState.SENT, "inc-2": DeliveryState.SENT}
    assert len(peer.got) == 2


def test_what_is_over_by_then_is_told_to_nobody(store: DeliveryStore, peer: Peer) -> None:
    cluster = Cluster(store, peer)
    store.add([replace(delivery(1), kinds=("fan/slow",))])
    cluster.courier.turn()
    cluster.open = set()
    cluster.courier.turn()
    (item,) = store.latest(9)
    assert (item.state, item.detail) == (DeliveryState.ABANDONED, "resolved during the silence sil-1 of ann")
    cluster.silenced = set()
    cluster.courier.turn()
    assert not peer.got


@pytest.mark.parametrize("ended_early", [True, False])
def test_a_silence_takes_nothing_from_the_time_for_which_it_is_tried(
    store: DeliveryStore, peer: Peer, *, ended_early: bool
) -> None:
    cluster = Cluster(store, peer)
    store.add([replace(delivery(1), kinds=("fan/slow",))])
    cluster.silence = replace(SILENCE, until=AT + 5 * 86_400.0)
    cluster.courier.turn()
    cluster.clock.advance(2 * 86_400.0 if ended_early else 5 * 86_400.0 - 60)
    cluster.silenced, peer.statuses = set(), [503, 503]
    cluster.courier.turn()
    cluster.clock.advance(3599.0)
    cluster.courier.turn()
    (item,) = store.latest(9)
    assert (item.state, item.attempts) == (DeliveryState.WAITING, 2)
    peer.statuses = [503]
    cluster.clock.advance(3600.0)
    cluster.courier.turn()
    (item,) = store.latest(9)
    assert item.state is DeliveryState.ABANDONED, "after that it is given up all the same"


def test_that_something_is_over_is_told_in_a_silence_too(store: DeliveryStore, peer: Peer) -> None:
    cluster = Cluster(store, peer)
    cluster.silenced = set()
    store.add([replace(delivery(1), kinds=("fan/slow",))])
    cluster.courier.turn()
    cluster.silenced, cluster.open = {"fan/slow"}, set()
    for _ in range(2):
        cluster.courier.turn()
    assert len(peer.got) == 2
