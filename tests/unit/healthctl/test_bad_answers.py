"""Every command that asks the controller, against every way in which it can be wrong: one line that says what, where and what to do."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import click
import pytest
from click.testing import Result

from tests.unit.healthctl.test_command_tree import LEAVES, TREE

WORDS = {"mode": "observe", "job": "7", "mtbf": "1h", "nodes": "1"}
MORE = {
    "healthctl alerts silence": ["--node", "*"],
    "healthctl token issue": ["--viewer", "vic"],
    "healthctl token rotate": ["--viewer", "vic"],
}
ANSWERS = {
    "a token that is not known": (401, b'{"error": "this token is not known"}', "give another token with --token-file"),
    "another role": (403, b'{"error": "this needs an operator"}', "an admin creates one with 'healthctl token issue'"),
    "nothing there": (
        404,
        b'{"error": "not found"}',
        "check that this is a controller of the same version as healthctl",
    ),
    "its bug": (500, b'{"error": "its log says why"}', "its log says why"),
    "another program": (200, b"<html>\x1b[31m", "check that the controller and healthctl have the same version"),
    "nothing": (200, b"", "check that the controller and healthctl have the same version"),
    "another shape": (200, b"[]", "check that the controller and healthctl have the same version"),
    "no end": (200, b"[" * 5000, "check that the controller and healthctl have the same version"),
}
ASKING = sorted(
    path for path in LEAVES if any(p.name == "url" and isinstance(p, click.Option) for p in TREE[path].params)
)


def typed(path: str) -> list[str]:
    """The command with as little as it needs."""
    words = path.split()[1:]
    for param in TREE[path].params:
        if isinstance(param, click.Argument):
            words.append(WORDS.get(str(param.name), "gpu-7"))
        elif param.required and param.name != "url":
            words += [param.opts[-1], {"span": "1h", "for_s": "1h"}.get(str(param.name), "1")]
        elif "--yes" in param.opts:
            words.append("--yes")
    return words + MORE.get(path, [])


@pytest.fixture
def wrong(serve: Callable[[type[BaseHTTPRequestHandler]], str]) -> Callable[[int, bytes], str]:
    """A server that answers everything alike; its URL."""

    def start(status: int, body: bytes) -> str:
        class Wrong(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                """Be quiet."""

        return serve(Wrong)

    return start


@pytest.mark.parametrize("how", ANSWERS)
def test_every_command_says_what_is_wrong_and_what_to_do(
    healthctl: Callable[..., Result], wrong: Callable[[int, bytes], str], token_file: Path, how: str
) -> None:
    status, body, todo = ANSWERS[how]
    url, unasked = wrong(status, body), []
    for path in ASKING:
        done = healthctl(*typed(path), HEALTHCTL_SERVER=url, HEALTHCTL_TOKEN_FILE=str(token_file), COLUMNS="40")
        assert done.exception is None or isinstance(done.exception, SystemExit), (path, done.exception)
        assert "\x1b" not in done.output, path
        if url not in done.stderr:
            unasked.append(path)
            continue
        assert done.exit_code == 3, (path, done.output)
        assert len(done.stderr.splitlines()) == 1, (path, done.stderr)
        assert todo in done.stderr, (path, done.stderr)
    assert unasked == ["healthctl enroll"] or status == 200, "who only sends is content with any such answer"
    assert len(unasked) < len(ASKING) / 2
