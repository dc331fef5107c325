"""Confirmation before a command takes a node from jobs or returns it: shows what is affected, then asks.

Commands that only stop automation do not ask, so that an operator can act fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

from healthctl.cli.screen import Screen
from healthctl.exit_codes import Exit, Failure
from healthctl.rendering.blocks import Block, escape_control_chars


class Consent:
    """Whether the operator agrees, from ``--yes`` and ``--dry-run``."""

    def __init__(self, *, yes: bool = False, dry_run: bool = False) -> None:
        self._yes, self._dry_run = yes, dry_run

    @property
    def is_dry_run(self) -> bool:
        """Whether nothing may change: ``--dry-run``."""
        return self._dry_run

    def confirm(self, what: str, preview: Callable[[], Sequence[Block]]) -> bool:
        """Show the preview and ask. ``--yes`` skips both; with ``--dry-run`` the answer is no, without asking.

        Raises:
            Failure: there is no terminal to ask at, or the answer is no.
        """
        if self._yes and not self._dry_run:
            return True
        asks = sys.stdin.isatty() and sys.stdout.isatty()
        if not (asks or self._dry_run):
            todo = "use --yes to skip the question, or --dry-run to see what is affected"
            raise Failure(f"not done: {what} needs confirmation, but there is no terminal; {todo}", Exit.USAGE)
        screen = Screen()
        screen.show(None, preview)
        if self._dry_run:
            screen.say(f"dry run: '{what}' would affect the above; nothing was changed")
            return False
        try:
            agreed = click.confirm(f"{escape_control_chars(what)}?", default=False)
        except click.Abort as end:
            if isinstance(end.__context__, KeyboardInterrupt):
                raise
            agreed = False  # the terminal has closed
        if not agreed:
            raise Failure("cancelled; nothing was changed")
        return True


def consent_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--yes`` and ``--dry-run`` to a command, which receives a `Consent` as its argument ``consent``."""

    @click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation; for scripts.")
    @click.option("--dry-run", is_flag=True, help="Show what would be affected, and change nothing.")
    @wraps(command)
    def with_consent(*args: Any, yes: bool, dry_run: bool, **kwargs: Any) -> Any:
        return command(*args, consent=Consent(yes=yes, dry_run=dry_run), **kwargs)

    return with_consent
