"""Credentials directly in the database: before the first admin exists, or while no remediator runs."""

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
    """The database URL in `place`, which is a URL or a remediator configuration file."""
    if "://" in place:
        return place
    try:
        return load_config(Path(place)).database
    except ConfigError as error:
        raise Failure(str(error), Exit.USAGE) from None


@contextlib.contextmanager
def open_database_credentials(place: str) -> Iterator[DatabaseCredentials]:
    """Open the credentials stored there; raises a Failure if the database is missing or unusable."""
    try:
        with contextlib.closing(Journal(database_of(place), create=False)) as journal:
            journal.prepare()
            yield DatabaseCredentials(Tokens(journal.engine))
    except (StoreError, SQLAlchemyError) as error:
        raise Failure(driver_message(error)) from None


class DatabaseCredentials:
    """`Credentials` in one database. Every change is audited with the user and the host."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def issue(self, role: Role, name: str, expires_s: float | None, uses: int | None, *, replaces: bool) -> str:
        """See `Credentials`."""
        now = time.time()
        until = None if expires_s is None else now + expires_s
        return self._tokens.issue(
            role, name, now, actor=_current_operator(), expires_at=until, uses=uses, replaces=replaces
        )

    def all(self) -> tuple[TokenView, ...]:
        """See `Credentials`."""
        return tuple(self._tokens.all())

    def rotate(self, role: Role, name: str, overlap_s: float, expires_s: float | None) -> str:
        """See `Credentials`."""
        now = time.time()
        until = None if expires_s is None else now + expires_s
        try:
            return self._tokens.rotate(role, name, now, overlap_s, actor=_current_operator(), expires_at=until)
        except LookupError as error:
            raise Failure(str(error.args[0])) from None

    def revoke(self, token_id: str) -> None:
        """See `Credentials`."""
        if not self._tokens.revoke(time.time(), actor=_current_operator(), token_id=token_id):
            raise Failure(f"no valid token {token_id}; see 'healthctl token list'")


def _current_operator() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        user = "unknown"
    return f"{user} (on {socket.gethostname()})"
