"""One-time actions of the controller: notifications and site hooks. No shell is used, and no string is interpreted.

An action may be repeated after a crash between doing and recording it; its id goes along, so that a receiver can
recognise a repetition.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Annotated

import msgspec

from remediator.model.delivery import NotificationMessage
from remediator.model.journal_records import Action
from remediator.model.scheduler_hold import ActionOutcome, ActionResult
from remediator.notifications.follow_up_messages import NotificationContext
from remediator.notifications.message_outbox import MessageOutbox

WORDS_MAX = 500

Argv = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class SiteHook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program that playbooks may start by name. It gets the message as JSON on standard input, never as arguments."""

    command: Argv  # program and arguments
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 60.0  # for one run


class ActionDispatcher:
    """Carries out alerts, tickets and hooks."""

    def __init__(self, hooks: Mapping[str, SiteHook], outbox: MessageOutbox | None = None) -> None:
        self._hooks = hooks
        self._outbox = outbox

    def start(self, context: NotificationContext) -> None:
        """Start delivering what the outbox holds."""
        if self._outbox is not None:
            self._outbox.start(context)

    def stop(self) -> None:
        """Stop delivering; waiting messages stay stored."""
        if self._outbox is not None:
            self._outbox.stop()

    def delivery_counts(self) -> dict[str, dict[str, int]]:
        """Return how attempts to each receiver ended in this term, by its name."""
        return {} if self._outbox is None else self._outbox.counts()

    def wake(self) -> None:
        """Check again what may be sent: silences have changed."""
        if self._outbox is not None:
            self._outbox.wake()

    def do(self, action: Action, message: NotificationMessage, kinds: tuple[str, ...] = ()) -> ActionOutcome:
        """Make one attempt. Ends within the hook's own deadline; an alert is done once it is stored in the outbox.

        Raises:
            SQLAlchemyError: the outbox cannot be written; nothing was done.
        """
        if action.verb == "exec":
            return self._run(str(action.data.get("how", "")), message)
        waiting = self._outbox.put(message, kinds) if self._outbox is not None else {}
        if not waiting:
            return ActionOutcome(
                ActionResult.DONE,
                "not delivered: no receiver is configured ('alerts.receivers'); see the audit log",
                untold=True,
            )
        later = {name for name, at in waiting.items() if at}
        names = [f"{name} (after its quiet hours)" if name in later else name for name in waiting]
        return ActionOutcome(ActionResult.DONE, f"queued for {', '.join(names)}")

    def _run(self, name: str, message: NotificationMessage) -> ActionOutcome:
        hook = self._hooks.get(name)
        if hook is None:
            return ActionOutcome(ActionResult.REFUSED, f"the configuration lists no hook '{name}'")
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
            return ActionOutcome(ActionResult.FAILED, f"{name} did not end within {hook.timeout_s:g} s")
        except OSError as error:
            return ActionOutcome(ActionResult.REFUSED, f"{name}: {hook.command[0]} cannot be started: {error.strerror}")
        words = (done.stdout or done.stderr).decode(errors="backslashreplace").strip()[-WORDS_MAX:]
        result = ActionResult.DONE if done.returncode == 0 else ActionResult.REFUSED
        return ActionOutcome(
            result, f"{name}: exit {done.returncode}: {words}" if words else f"{name}: exit {done.returncode}"
        )
