"""What tests of webhooks share: a peer to send to, and an outbox on a real database."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine, create_engine

from remediator.notifications.alert_settings import AlertSettings
from remediator.notifications.message_outbox import MessageOutbox
from remediator.store import table_schema
from remediator.store.delivery_store import DeliveryStore
from tests.conftest import skip_or_fail
from tests.unit.remediator.act.webhooks.peer import Peer
from vocabulary.clock import SystemClock


@pytest.fixture
def peer() -> Iterator[Peer]:
    server = Peer()
    yield server
    server.close()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'r.db'}", connect_args={"timeout": 30})
    table_schema.metadata.create_all(engine)
    with engine.begin() as db:
        db.execute(table_schema.meta.insert(), [{"key": "epoch", "value": "1"}])
    yield engine
    engine.dispose()


@pytest.fixture
def store(database: Engine) -> DeliveryStore:
    return DeliveryStore(database)


@pytest.fixture
def outbox(store: DeliveryStore) -> Iterator[Callable[[dict[str, Any]], MessageOutbox]]:
    """``outbox({...})``: one with this configuration; stopped at the end."""
    made: list[MessageOutbox] = []

    def make(alerts: dict[str, Any]) -> MessageOutbox:
        made.append(MessageOutbox(msgspec.convert(alerts, AlertSettings), store, "c", SystemClock()))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1 that nobody signed."""
    if shutil.which("openssl") is None:
        skip_or_fail("no openssl here to make a certificate")
    place = tmp_path_factory.mktemp("tls")
    made = place / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(place / "key"), "-out", str(place / "cert")]
    subprocess.run([*command, *names], check=True, capture_output=True)
    made.write_text((place / "key").read_text() + (place / "cert").read_text())
    return made
