"""A real Alertmanager: what we send is there, stays there while it is so, and ends with its incident."""

from __future__ import annotations

import contextlib
import datetime as dt
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from remediator.model.delivery import DeliveryState
from remediator.notifications.message_outbox import MessageOutbox
from remediator.store.delivery_store import DeliveryStore
from tests.conftest import skip_or_fail
from tests.unit.remediator.act.webhooks.peer import message, standing, until

PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
CONFIG = """
route: {receiver: nobody, group_wait: 1s, group_interval: 1s, repeat_interval: 1h}
receivers: [{name: nobody}]
"""


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its URL."""
    if PROGRAM is None:
        skip_or_fail("no prometheus-alertmanager here")
    place = tmp_path_factory.mktemp("alertmanager")
    (place / "am.yml").write_text(CONFIG)
    for _ in range(5):  # another program may take the free port before it does
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        command = [str(PROGRAM), f"--config.file={place / 'am.yml'}", f"--storage.path={place / 'data'}"]
        with (place / "log").open("ab") as log:
            program = subprocess.Popen(
                [*command, f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="],
                stdout=log,
                stderr=log,
            )
        try:
            if _ready(url, program):
                yield url
                return
        finally:
            program.terminate()
            program.wait(timeout=30)
    pytest.fail((place / "log").read_text())


def _ready(url: str, program: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + 60
    while program.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(requests.RequestException):
            if requests.get(f"{url}/-/ready", timeout=5).ok:
                return True
        time.sleep(0.05)
    return False


def active(url: str, **labels: str) -> list[dict[str, Any]]:
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    answer = requests.get(f"{url}/api/v2/alerts", params={"filter": wanted}, timeout=10)
    answer.raise_for_status()
    found: list[dict[str, Any]] = answer.json()
    return found


def end(alert: dict[str, Any]) -> float:
    return dt.datetime.fromisoformat(alert["endsAt"].replace("Z", "+00:00")).timestamp()


def test_alerts_stay_while_their_incident_is_open_and_end_with_it(
    alertmanager: str, outbox: Callable[[dict[str, Any]], MessageOutbox], store: DeliveryStore
) -> None:
    open_ones = {"inc-7", "inc-8"}
    box = outbox({"receivers": {"am": {"kind": "alertmanager", "url": alertmanager, "repeat_s": 1}}})
    box.start(standing(open_ones))
    now = time.time()
    box.put(message(7, at=now))
    box.put(message(8, at=now))
    first = until(lambda: active(alertmanager, incident="inc-7"))[0]
    assert first["labels"]["alertname"] == "GpuHealthdIncident"
    assert first["labels"]["rack"] == "r1"
    assert first["annotations"]["summary"] == "fatal: n7: xid/79 on gpu 3"
    assert first["generatorURL"].endswith("/incidents/inc-7")
    until(lambda: [a for a in active(alertmanager, incident="inc-7") if end(a) > end(first)], "it was not said again")
    open_ones.remove("inc-7")
    until(lambda: not active(alertmanager, incident="inc-7"), "it did not end")
    assert active(alertmanager, incident="inc-8")
    until(lambda: {i.state for i in store.latest(9)} == {DeliveryState.SENT})


def test_the_heartbeat_fires_as_long_as_we_lead_and_runs_out_by_itself(
    alertmanager: str, outbox: Callable[[dict[str, Any]], MessageOutbox]
) -> None:
    alerts = {
        "receivers": {"am": {"kind": "alertmanager", "url": alertmanager}},
        "heartbeat": {"receiver": "am", "every_s": 1},
    }
    box = outbox(alerts)
    box.start(standing(set()))
    until(lambda: active(alertmanager, alertname="GpuHealthdHeartbeat"))
    box.stop()
    until(lambda: not active(alertmanager, alertname="GpuHealthdHeartbeat"), "it did not run out")
