"""What the controller and its commands say of themselves: what is so, once, and nothing that belongs to another."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from remediator.api.handler_context import LongPollWakeups
from remediator.api.leader_gateway import LeaderGateway
from remediator.config import Config
from remediator.engine.policy_reload import PolicyReloader
from remediator.main import main
from remediator.serving.replica import _DrainingServer
from remediator.store.database import StoreError


def test_an_address_is_named_only_once_it_is_listened_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    wakeups = LongPollWakeups()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = Config(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(StoreError, match="listen"):
            _DrainingServer(LeaderGateway(wakeups), config, wakeups).run()
    assert config.listen not in caplog.text


def test_the_address_is_named_when_it_is_listened_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    wakeups = LongPollWakeups()
    server = _DrainingServer(LeaderGateway(wakeups), Config(listen="127.0.0.1:0"), wakeups)
    monkeypatch.setattr("uvicorn.Server.run", lambda *_: None)
    server.run()
    for each in server.listener._sockets:
        each.close()
    assert "cluster default, on 127.0.0.1:0" in caplog.text


@pytest.mark.parametrize(
    ("words", "level"), [(["serve"], logging.INFO), (["token", "list"], logging.WARNING)], ids=["serve", "token"]
)
def test_only_the_service_logs_what_is_usual(
    words: list[str], level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **given: seen.append(given["level"]))
    CliRunner().invoke(main, [*words, "--config", str(tmp_path / "none.yaml")])
    assert seen == [level]


def test_a_policy_that_is_the_same_is_not_said_to_replace_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reload = PolicyReloader(Config())
    reload.current()
    assert caplog.text == ""
    reload.run()  # SIGHUP: people asked
    assert "change nothing" in caplog.text
