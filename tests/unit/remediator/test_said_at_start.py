"""What the centre and its commands say of themselves: what is so, once, and nothing that belongs to another."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from remediator.api.front import Front
from remediator.api.service import Wakeups
from remediator.config import Config
from remediator.main import main
from remediator.policy_reload import PolicyReload
from remediator.serving.serve import _Server
from remediator.store.database import StoreError


def test_an_address_is_named_only_once_it_is_listened_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    wakeups = Wakeups()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = Config(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(StoreError, match="listen"):
            _Server(Front(wakeups), config, wakeups).run()
    assert config.listen not in caplog.text


def test_the_address_is_named_when_it_is_listened_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    wakeups = Wakeups()
    server = _Server(Front(wakeups), Config(listen="127.0.0.1:0"), wakeups)
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
    reload = PolicyReload(Config())
    reload.current()
    assert caplog.text == ""
    reload.run()  # SIGHUP: people asked
    assert "change nothing" in caplog.text
