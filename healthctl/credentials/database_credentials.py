"""Credentials in the database itself, where it is at hand: before there is an admin, or while no remediator answers."""

from __future__ import annotations

import contextlib
import getpass
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from healthctl.exit_codes import Exit, Failure
from remediator.config import ConfigError, load_config
from remediator.model.credentials import Role, TokenView
from remediator.store.database import driver_message
from remediator.store.journal import Journal, StoreError
from remediator.store.token_store import Tokens


def database_of(place: str) -> str:
    """The database URL that `place`, a URL or a remediator's configuration, names."""
    if "://" in place:
        return place
    try:
        return load_config(Path(place)).database
    except ConfigError as error:
        raise Failure(str(error), Exit.USAGE) from None


@contextlib.contextmanager
def open_database_credentials(place: str) -> Iterator[DatabaseCredentials]:
    """The credentials kept there; a Failure if there is no such database or it cannot be used."""
    try:
        with contextlib.closing(Journal(database_of(place), create=False)) as journal:
            journal.prepare()
            yield DatabaseCredentials(Tokens(journal.engine))
    except (StoreError, SQLAlchemyError) as error:
        raise Failure(driver_message(error)) from None


class DatabaseCredentials:
    """`Credentials` of one database. Every change is audited with the user who made it and the machine."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def issue(self, role: Role, name: str, expires_s: float | None, uses: int | None, *, replaces: bool) -> str:
        """As the protocol says."""
        now = time.time()
        until = None if expires_s is None else now + expires_s
        return self._tokens.issue(
            role, name, now, actor=_current_operator(), expires_at=until, uses=uses, replaces=replaces
        )

    def all(self) -> tuple[TokenView, ...]:
        """As the protocol says."""
        return tuple(self._tokens.all())

    def rotate(self, role: Role, name: str, overlap_s: float, expires_s: float | None) -> str:
        """As the protocol says."""
        now = time.time()
        until = None if expires_s is None else now + expires_s
        try:
            return self._tokens.rotate(role, name, now, overlap_s, actor=_current_operator(), expires_at=until)
        except LookupError as error:
            raise Failure(str(error.args[0])) from None

    def revoke(self, token_id: str) -> None:
        """As the protocol says."""
        if not self._tokens.revoke(time.time(), actor=_current_operator(), token_id=token_id):
            raise Failure(f"there is no token {token_id} that is good; 'healthctl token list' shows them")


def _current_operator() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        user = "unknown"
    return f"{user} (on {socket.gethostname()})"
