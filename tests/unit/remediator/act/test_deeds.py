"""Alerts, tickets and hooks against a real receiver and real programs."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from remediator.act.deeds import Deeds, Hook, Message, Telling
from remediator.model.hold import Result
from remediator.model.records import Action

MESSAGE = Message("a1", "alert", "c", "n1", "inc-1", "$(touch /tmp/x) `id`", "r", "text\n; rm -rf /", injected=False)


def action(verb: str, how: str = "") -> Action:
    return Action(
        id="a1", incident="inc-1", decision="d", node="n1", verb=verb, planned_at=0, deadline=9, data={"how": how}
    )


class Receiver(HTTPServer):
    def __init__(self) -> None:
        self.got: list[tuple[str, str, dict[str, object]]] = []
        self.status = 200
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/secret-path"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Receiver)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server.got.append((self.path, self.headers["idempotency-key"], body))
        self.send_response(server.status)
        self.send_header("location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    yield server
    server.shutdown()
    server.server_close()


def test_everybody_is_told_once_with_a_key_that_names_a_repetition(receiver: Receiver) -> None:
    outcome = Deeds(Telling(webhooks=(receiver.url,)), {}).do(action("alert"), MESSAGE)
    assert outcome.result is Result.DONE
    ((path, key, body),) = receiver.got
    assert (path, key) == ("/secret-path", "a1")
    assert body["title"] == MESSAGE.title


@pytest.mark.parametrize("status", [301, 500, 404])
def test_a_receiver_that_does_not_take_it_is_asked_again_and_its_secret_is_not_told(
    receiver: Receiver, status: int
) -> None:
    receiver.status = status
    outcome = Deeds(Telling(webhooks=(receiver.url, "http://127.0.0.1:1/x")), {}).do(action("ticket"), MESSAGE)
    assert outcome.result is Result.FAILED
    assert f"status {status}" in outcome.detail
    assert "secret" not in outcome.detail


def test_with_nobody_to_tell_the_plan_goes_on_and_says_so() -> None:
    outcome = Deeds(Telling(), {}).do(action("alert"), MESSAGE)
    assert outcome.result is Result.DONE
    assert "alerts.webhooks" in outcome.detail


def test_a_hook_gets_the_message_as_data_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = (
        f"import sys,os,json; open({str(out)!r},'w').write(json.dumps([sys.stdin.read(), sys.argv, dict(os.environ)]))"
    )
    hooks = {"h": Hook(command=(sys.executable, "-c", script))}
    assert Deeds(Telling(), hooks).do(action("exec", "h"), MESSAGE).result is Result.DONE
    text, argv, environment = json.loads(out.read_text())
    assert json.loads(text)["text"] == MESSAGE.text
    assert argv == ["-c"]
    assert set(environment) <= {"PATH", "LC_ALL", "LC_CTYPE"}


@pytest.mark.parametrize(
    ("hook", "result", "says"),
    [
        (Hook(command=(sys.executable, "-c", "import sys; sys.exit('no power')")), Result.REFUSED, "exit 1: no power"),
        (Hook(command=("/nowhere/hook",)), Result.REFUSED, "cannot be started: No such file"),
        (
            Hook(command=(sys.executable, "-c", "import time; time.sleep(60)"), timeout_s=0.2),
            Result.FAILED,
            "did not end within 0.2 s",
        ),
        (None, Result.REFUSED, "the configuration allows no hook called 'h'"),
    ],
)
def test_a_hook_that_does_not_work_is_said(hook: Hook | None, result: Result, says: str) -> None:
    outcome = Deeds(Telling(), {} if hook is None else {"h": hook}).do(action("exec", "h"), MESSAGE)
    assert outcome.result is result
    assert says in outcome.detail


def test_a_receiver_must_be_a_url() -> None:
    with pytest.raises(ValueError, match="must begin with http"):
        Telling(webhooks=("ftp://x",))
