"""`remediator webhooks` against a real receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from remediator.main import main
from tests.unit.remediator.act.webhooks.peer import Peer


@pytest.fixture
def peer() -> Iterator[Peer]:
    server = Peer()
    yield server
    server.close()


def run(tmp_path: Path, peer: Peer, *arguments: str) -> Result:
    (tmp_path / "url").write_text(f"{peer.url}\n")
    (tmp_path / "key").write_text("k" * 32)
    (tmp_path / "r.yaml").write_text(
        f"""
database: sqlite:///{tmp_path / "r.db"}
alerts:
  receivers:
    chat: {{kind: slack, url_file: {tmp_path / "url"}}}
    pager: {{kind: pagerduty, url: '{peer.url}', routing_key_file: {tmp_path / "key"}}}
    lost: {{kind: slack, url_file: {tmp_path / "none"}}}
"""
    )
    return CliRunner().invoke(main, ["webhooks", *arguments, "--config", str(tmp_path / "r.yaml")])


def test_a_test_message_says_that_it_is_one_and_who_took_it(tmp_path: Path, peer: Peer) -> None:
    done = run(tmp_path, peer, "test", "chat")
    assert done.exit_code == 0
    assert done.output == f"chat accepted the message (fire): 127.0.0.1:{peer.server_address[1]}: status 200\n"
    assert "[drill]" in json.loads(peer.got[0][2])["text"]


def test_what_keeps_matters_open_is_told_at_once_that_it_is_over(tmp_path: Path, peer: Peer) -> None:
    assert run(tmp_path, peer, "test", "pager").exit_code == 0
    events = [json.loads(body) for _, _, body in peer.got]
    assert [event["event_action"] for event in events] == ["trigger", "resolve"]
    assert len({event["dedup_key"] for event in events}) == 1


def test_a_refusal_says_what_to_look_at_and_no_secret(tmp_path: Path, peer: Peer) -> None:
    peer.status = 404
    done = run(tmp_path, peer, "test", "chat")
    assert done.exit_code == 1
    assert "rejected the message" in done.output
    assert "the webhook may have been removed" in done.output
    assert "secret" not in done.output


def test_a_name_or_a_file_that_is_not_there_is_said(tmp_path: Path, peer: Peer) -> None:
    assert "configured: chat, pager, lost" in run(tmp_path, peer, "test", "cht").output
    assert "none: cannot be read (No such file or directory)" in run(tmp_path, peer, "test", "lost").output


def test_the_list_reads_what_is_there(tmp_path: Path, peer: Peer) -> None:
    assert "check that the controller has run" in run(tmp_path, peer, "list").output
