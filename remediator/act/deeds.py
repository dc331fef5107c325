"""Deeds done once at the centre: telling people (webhooks), and a site's own hooks. No shell, no string is ever interpreted.

A deed may be asked for again after a crash between doing and writing it down; its action id travels along, so that a
receiver can tell a repetition.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Annotated

import msgspec
import requests

from remediator.model.hold import Outcome, Result
from remediator.model.records import Action

WORDS_MAX = 500

Argv = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class Hook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program that playbooks may start by its name. It gets the message as JSON on standard input, never as arguments."""

    command: Argv
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 60.0


class Telling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who is told of alerts and tickets: URLs that take the message as a JSON POST."""

    webhooks: tuple[str, ...] = ()
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0

    def __post_init__(self) -> None:
        for url in self.webhooks:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"webhooks: {url!r} must begin with http:// or https://")


class Message(msgspec.Struct, frozen=True):
    """What receivers and hooks are told. `id` is the same for a repetition."""

    id: str
    kind: str
    cluster: str
    node: str
    incident: str
    title: str
    rule: str
    text: str
    injected: bool


class Deeds:
    """Carries out alerts, tickets and hooks."""

    def __init__(self, telling: Telling, hooks: Mapping[str, Hook]) -> None:
        self._telling = telling
        self._hooks = hooks

    def do(self, action: Action, message: Message) -> Outcome:
        """One attempt. Ends within the receiver's or the hook's own deadline; never raises for what the world does."""
        if action.verb == "exec":
            return self._run(str(action.data.get("how", "")), message)
        if not self._telling.webhooks:
            return Outcome(
                Result.DONE, "nobody is configured to be told ('alerts.webhooks'); it stands in the audit log"
            )
        told = [self._post(url, message) for url in self._telling.webhooks]
        missed = [words for words in told if words]
        return Outcome(Result.FAILED, "; ".join(missed)) if missed else Outcome(Result.DONE, f"told {len(told)}")

    def _post(self, url: str, message: Message) -> str:
        """Why it was not delivered, empty if it was."""
        headers = {"content-type": "application/json", "idempotency-key": message.id}
        try:
            answer = requests.post(
                url,
                msgspec.json.encode(message),
                headers=headers,
                timeout=self._telling.timeout_s,
                allow_redirects=False,
            )
        except requests.RequestException as error:
            return f"{_host(url)}: {type(error).__name__}"
        taken = 200 <= answer.status_code < 300  # a redirect took nothing
        return "" if taken else f"{_host(url)}: status {answer.status_code}"

    def _run(self, name: str, message: Message) -> Outcome:
        hook = self._hooks.get(name)
        if hook is None:
            return Outcome(Result.REFUSED, f"the configuration allows no hook called '{name}'")
        try:
            done = subprocess.run(
                hook.command,
                input=msgspec.json.encode(message),
                capture_output=True,
                timeout=hook.timeout_s,
                check=False,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
            )
        except subprocess.TimeoutExpired:
            return Outcome(Result.FAILED, f"{name} did not end within {hook.timeout_s:g} s")
        except OSError as error:
            return Outcome(Result.REFUSED, f"{name}: {hook.command[0]} cannot be started: {error.strerror}")
        words = (done.stdout or done.stderr).decode(errors="backslashreplace").strip()[-WORDS_MAX:]
        result = Result.DONE if done.returncode == 0 else Result.REFUSED
        return Outcome(
            result, f"{name}: exit {done.returncode}: {words}" if words else f"{name}: exit {done.returncode}"
        )


def _host(url: str) -> str:
    """A URL may carry a secret in its path: only the host is ever written down."""
    return url.split("/")[2].rpartition("@")[2]
