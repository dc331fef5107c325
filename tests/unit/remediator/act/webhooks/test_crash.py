"""kill -9 in the middle of telling: nothing is lost, and one repetition at most, under the same name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remediator.model.delivery import DeliveryState
from remediator.notifications.message_outbox import MessageOutbox
from remediator.store.delivery_store import DeliveryStore
from tests.unit.remediator.act.webhooks.peer import Peer, standing, until

ROOT = Path(__file__).parents[5]
CHILD = """
import sys, time, msgspec
from sqlalchemy import create_engine
from remediator.notifications.message_outbox import MessageOutbox
from remediator.notifications.alert_settings import AlertSettings
from remediator.store.delivery_store import DeliveryStore
from tests.unit.remediator.act.webhooks.peer import message, standing
from vocabulary.clock import SystemClock
store = DeliveryStore(create_engine(sys.argv[1]))
box = MessageOutbox(msgspec.convert({"webhooks": [sys.argv[2]]}, AlertSettings), store, "c", SystemClock())
box.put(message(1))
print("written down", flush=True)
box.start(standing({"inc-1"}))
time.sleep(600)
"""


def child(store: DeliveryStore, peer: Peer) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(store._engine.url), peer.url]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "."})


def keys(peer: Peer) -> list[str]:
    return [headers["idempotency-key"] for _, headers, _ in peer.got]


@pytest.mark.parametrize("answered", ["before its answer", "after its answer"])
def test_killed_between_sending_and_writing_it_down(
    peer: Peer, store: DeliveryStore, outbox: Callable[[dict[str, Any]], MessageOutbox], answered: str
) -> None:
    program = child(store, peer)
    try:
        if answered == "before its answer":
            peer.act = lambda _: os.kill(program.pid, signal.SIGKILL)
        until(lambda: peer.got)
        if answered == "after its answer":
            program.kill()  # before or after it was written down: both must hold
        program.wait(timeout=60)
    finally:
        program.kill()
        program.communicate()
    peer.act = None
    box = outbox({"webhooks": [peer.url]})
    box.start(standing({"inc-1"}))
    until(lambda: {i.state for i in store.latest(9)} == {DeliveryState.SENT})
    assert len(set(keys(peer))) == 1
    assert len(keys(peer)) <= 2
    if answered == "before its answer":
        assert len(keys(peer)) == 2
    bodies = {body for _, _, body in peer.got}
    assert len(bodies) == 1
    box.stop()
    again = outbox({"webhooks": [peer.url]})
    again.start(standing({"inc-1"}))
    time.sleep(0.2)
    assert len(keys(peer)) <= 2


def test_killed_before_sending_loses_nothing(
    peer: Peer, store: DeliveryStore, outbox: Callable[[dict[str, Any]], MessageOutbox]
) -> None:
    dead = Peer()
    dead.status = 503
    program = child(store, dead)
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "written down\n"
    finally:
        program.kill()
        program.communicate()
        dead.close()
    outbox({"webhooks": [peer.url]}).start(standing({"inc-1"}))
    until(lambda: {i.state for i in store.latest(9)} == {DeliveryState.SENT})
    assert len(keys(peer)) == 1
