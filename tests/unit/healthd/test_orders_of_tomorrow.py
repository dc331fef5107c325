"""An older node and a newer centre: an order of a kind nobody here knows is refused, the others are carried out."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.config import RemediatorConfig
from healthd.controller.controller_client import ControllerClient
from healthd.orders.order_inbox import OrderInbox
from healthd.orders.order_store import OrderStore
from healthd.storage.database_writer import DatabaseWriter
from healthd.storage.node_database import NodeDatabase
from vocabulary.clock import ManualClock
from vocabulary.messages.wire import WireError, decode_message, decode_orders, encode_message
from vocabulary.order import Order, OrderKind, OrderState, OrderUpdate

KNOWN = Order(
    id="o1", kind=OrderKind.COLLECT_EVIDENCE, node="n1", issued_at=1.0, expires_at=9e9, incident="i", reason="r"
)  # fmt: skip
TOMORROW = {**json.loads(encode_message(KNOWN)), "id": "o/2", "kind": "replace_the_moon"}


class Tomorrow(ThreadingHTTPServer):
    """A controller that hands out an order of tomorrow before one of today, and hears answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[OrderUpdate] = []
        self.wants_answers = True


class _Handler(BaseHTTPRequestHandler):
    server: Tomorrow

    def do_GET(self) -> None:
        self._say(200, json.dumps({"orders": [TOMORROW, json.loads(encode_message(KNOWN))]}).encode())

    def do_POST(self) -> None:
        assert self.path == "/v1/nodes/n1/orders/o%2F2"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.answers.append(decode_message(body, OrderUpdate))
        self._say(204 if self.server.wants_answers else 404, b"")

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def tomorrow() -> Iterator[Tomorrow]:
    with Tomorrow() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("wanted", [True, False])
def test_what_it_does_not_know_is_refused_and_the_rest_is_done(
    tomorrow: Tomorrow, tmp_path: Path, *, wanted: bool
) -> None:
    tomorrow.wants_answers = wanted
    (tmp_path / "token").write_text("t")
    config = RemediatorConfig(url=f"http://127.0.0.1:{tomorrow.server_port}", token_file=tmp_path / "token")
    store = OrderStore(DatabaseWriter(NodeDatabase(tmp_path / "d.db", 0.0), ManualClock()), "n1")
    centre, told = ControllerClient(config, "n1"), threading.Event()
    assert OrderInbox(config, "n1", store, ManualClock(), told.set).fetch(centre, 0) == 1
    centre.close()
    assert told.is_set()
    assert [order for order, _ in store.open()] == [KNOWN]
    (answer,) = tomorrow.answers
    assert (answer.id, answer.state) == ("o/2", OrderState.REFUSED)
    assert "replace_the_moon" in answer.detail
    assert "too old" in answer.detail


def test_an_order_kept_by_a_newer_healthd_ends_refused_after_a_downgrade(tmp_path: Path) -> None:
    store = OrderStore(DatabaseWriter(NodeDatabase(tmp_path / "d.db", 0.0), ManualClock()), "n1")
    assert store.receive(KNOWN, 1.0)
    with sqlite3.connect(tmp_path / "d.db") as db:
        db.execute("update orders set body = ?", [json.dumps({**TOMORROW, "id": "o1"}).encode()])
    db.close()
    after = OrderStore(DatabaseWriter(NodeDatabase(tmp_path / "d.db", 0.0), ManualClock()), "n1")
    assert after.open() == []
    (answer,) = after.unsent(0)
    assert answer.state is OrderState.REFUSED
    assert "too old" in answer.detail


def test_an_order_without_an_id_is_no_reply_of_a_remediator() -> None:
    with pytest.raises(WireError):
        decode_orders(b'{"orders": [{"kind": "abort"}]}')


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)  # fmt: skip


@given(st.lists(st.fixed_dictionaries({"id": st.text()}, optional={"kind": _JSON, "expires_at": _JSON, "new": _JSON})))
def test_nothing_an_order_may_hold_hides_the_good_one_after_it(strange: list[dict[str, Any]]) -> None:
    found = decode_orders(json.dumps({"orders": [*strange, json.loads(encode_message(KNOWN))]}))
    assert found.orders == (KNOWN,)
    assert [each.id for each in found.unread] == [each["id"] for each in strange]


def test_a_message_that_is_nested_without_end_is_no_message() -> None:
    with pytest.raises(WireError, match="nested"):
        decode_message(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", Order)
