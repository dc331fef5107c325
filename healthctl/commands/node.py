"""`healthctl node check`: the local verdict, for prologs and for Nagios."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path
from typing import Any

import click

from healthctl.output import clean, json_text, output_option
from vocabulary.health import Health, Verdict
from vocabulary.wire import WireError, decode

SOCKET = Path("/run/gpu-healthd/healthd.sock")
DEADLINE_S = 5.0
ANSWER_BYTES_MAX = 1 << 20

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3  # what Nagios makes of an exit code
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")


class NagiosCommand(click.Command):
    """A command whose wrong usage is UNKNOWN, since Nagios reads 2 as CRITICAL."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments."""
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            error.exit_code = UNKNOWN  # type: ignore[misc]  # click declares it per class, reads it per instance
            raise


@click.group()
def node() -> None:
    """Ask the daemon on this node."""


@node.command(cls=NagiosCommand)
@click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path),
    default=SOCKET,
    show_default=True,
    help="healthd's UNIX socket.",
)
@output_option
def check(path: Path, output: str) -> None:
    """Is this node fit for work?

    Ends as Nagios wants it: 0 OK, 1 WARNING (works, but degraded), 2 CRITICAL (unfit or condemned), 3 UNKNOWN (no
    answer, or healthd itself does not know). A job prolog should take 0 and 1 as yes, anything else as no.
    """
    try:
        verdict = decode(ask(path), Verdict)
    except (OSError, http.client.HTTPException, WireError) as error:
        reason = f"no verdict from {path}: {str(error) or type(error).__name__}; is healthd running?"
        if output == "json":
            click.echo(json_text({"error": reason}))
        _end(UNKNOWN, reason, quiet=output == "json")
    code = judge(verdict)
    if output == "json":
        click.echo(json_text(verdict))
    reasons = "; ".join(verdict.reasons)
    _end(code, f"{verdict.node} is {verdict.health.value}{f': {reasons}' if reasons else ''}", quiet=output == "json")


def judge(verdict: Verdict) -> int:
    """The exit code. What contradicts itself is unknown: healthy yet unfit, say."""
    if verdict.condemned or verdict.health is Health.UNHEALTHY:
        return CRITICAL
    if verdict.health is Health.UNKNOWN or not verdict.fit:
        return UNKNOWN
    return OK if verdict.health is Health.HEALTHY else WARNING


def ask(path: Path) -> bytes:
    """The body of healthd's answer.

    Raises:
        OSError: nobody listens, or no answer came in time.
        http.client.HTTPException: the answer is no HTTP, or not 200.
    """
    connection = _LocalConnection(path)
    try:
        connection.request("GET", "/v1/verdict")
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX)
        if answer.status != http.client.OK:
            raise http.client.HTTPException(f"{answer.status} {answer.reason}")
        return body
    finally:
        connection.close()


class _LocalConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=DEADLINE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(DEADLINE_S)
        self.sock.connect(str(self._path))


def _end(code: int, text: str, *, quiet: bool) -> None:
    if not quiet:
        click.echo(f"{WORDS[code]} - {clean(text)}")
    raise SystemExit(code)
