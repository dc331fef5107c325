"""The outbox's rows, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, create_engine

from remediator.model.delivery import DeliveryState, LeadershipLost
from remediator.store import table_schema
from remediator.store.delivery_store import DeliveryStore
from tests.unit.remediator.act.webhooks.peer import AT, delivery


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    made = create_engine(database)
    table_schema.metadata.create_all(made)
    with made.begin() as db:
        db.execute(table_schema.meta.insert(), [{"key": "epoch", "value": "3"}])
    yield made
    made.dispose()


@pytest.fixture
def store(engine: Engine) -> DeliveryStore:
    return DeliveryStore(engine)


def test_what_is_known_is_not_added_again(store: DeliveryStore) -> None:
    store.add([delivery(1), delivery(2)])
    begun = replace(delivery(1), batch="msg_a", claimed_at=AT, attempts=1)
    store.save([begun], 3)
    store.add([delivery(1), delivery(3)])
    assert [item.attempts for item in store.waiting("r")] == [1, 0, 0]
    assert store.waiting("another") == []


def test_a_piece_counts_once_however_many_are_in_it(store: DeliveryStore) -> None:
    store.save([replace(delivery(n), batch=f"msg_{n % 2}", claimed_at=AT + n % 2) for n in range(6)], 3)
    store.save([replace(delivery(7), batch="msg_free")], 3)
    assert sorted(store.begun("r", AT - 1)) == [AT, AT + 1]
    assert store.begun("r", AT) == [AT + 1]


def test_told_is_what_was_sent_and_has_no_end_yet(store: DeliveryStore) -> None:
    sent = replace(delivery(1), state=DeliveryState.SENT)
    store.save([sent, replace(delivery(2), state=DeliveryState.SENT, settled=True), delivery(3)], 3)
    assert store.unresolved("r") == [sent]


def test_a_term_that_is_over_writes_nothing(store: DeliveryStore) -> None:
    with pytest.raises(LeadershipLost):
        store.save([delivery(1), delivery(2)], 2)
    assert store.latest(9) == []


def test_what_is_over_is_forgotten_in_time(store: DeliveryStore) -> None:
    store.save([replace(delivery(1), state=DeliveryState.ABANDONED), delivery(2)], 3)
    store.forget(AT)
    assert len(store.latest(9)) == 2
    store.forget(AT + 1)
    assert [item.message.incident for item in store.latest(9)] == ["inc-2"]


def test_text_that_a_database_dislikes_survives(store: DeliveryStore) -> None:
    odd = replace(delivery(1), detail="\0 ' \" ; -- \U0001f525")
    store.save([odd], 3)
    assert store.waiting("r") == [odd]


def test_a_row_that_cannot_be_read_keeps_back_no_other(
    store: DeliveryStore, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    store.add([delivery(1), delivery(2)])
    with engine.begin() as db:
        db.execute(
            table_schema.deliveries.update().where(table_schema.deliveries.c.id == delivery(1).id).values(body=b"{")
        )
    assert store.waiting("r") == [delivery(2)]
    assert "cannot be read" in caplog.text
    assert store.left_for() == {"r": 2}
