"""Tokens of a cluster of one: made once, and again only where the database does not know them any more."""

from __future__ import annotations

import contextlib
import getpass
import os
import time
from pathlib import Path

from healthctl.exits import Failure
from healthctl.up.home import Home
from healthctl.up.private import write_new
from remediator.model.credentials import Role
from remediator.store.journal import Journal, StoreError
from remediator.store.tokens import Tokens


def provide(home: Home, node: str) -> None:
    """Make sure that the node and the person have a token each, in files for us alone.

    Raises:
        Failure: the database is in use by another remediator, or cannot be used.
    """
    try:
        with contextlib.closing(Journal(home.database)) as journal:
            journal.prepare()
            tokens = Tokens(journal.engine)
            tokens.refresh()
            _provide(tokens, Role.NODE, node, home.node_token_file)
            _provide(tokens, Role.ADMIN, _me(), home.token_file)
    except StoreError as error:
        raise Failure(str(error)) from None


def _provide(tokens: Tokens, role: Role, name: str, file: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        known = tokens.identify(file.read_text().strip())
        if known is not None and (known.role, known.name) == (role, name):
            return
    write_new(file, f"{tokens.issue(role, name, time.time(), actor='healthctl up')}\n")


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        return f"uid-{os.geteuid()}"
