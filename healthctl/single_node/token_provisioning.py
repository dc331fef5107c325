"""Tokens of a single-node cluster, created once and replaced only if the database does not contain them."""

from __future__ import annotations

import contextlib
import getpass
import os
import time
from pathlib import Path

from healthctl.exit_codes import Failure
from healthctl.single_node.home_directory import HomeDirectory
from healthctl.single_node.private_files import write_new
from remediator.model.credentials import Role
from remediator.store.journal import Journal, StoreError
from remediator.store.token_store import Tokens


def provision_tokens(home: HomeDirectory, node: str) -> None:
    """Make sure that the node and the user each have a token, in private files.

    Raises:
        Failure: the database is used by another remediator, or is unusable.
    """
    try:
        with contextlib.closing(Journal(home.database)) as journal:
            journal.prepare()
            tokens = Tokens(journal.engine)
            tokens.refresh()
            _provision_token(tokens, Role.NODE, node, home.node_token_file)
            _provision_token(tokens, Role.ADMIN, _current_user(), home.token_file)
    except StoreError as error:
        raise Failure(str(error)) from None


def _provision_token(tokens: Tokens, role: Role, name: str, file: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        known = tokens.identify(file.read_text().strip())
        if known is not None and (known.role, known.name) == (role, name):
            return
    write_new(file, f"{tokens.issue(role, name, time.time(), actor='healthctl up')}\n")


def _current_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        return f"uid-{os.geteuid()}"
