"""What can be done with credentials, the same in either place. Times and spans are seconds."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Protocol

import click

from healthctl.api_client.remediator_client import connect_to_server, connection_options
from healthctl.exit_codes import Failure, require_extra
from remediator.model.credentials import Role, TokenView


class Credentials(Protocol):
    """Tokens of one cluster. Everything raises Failure where it cannot be done."""

    def issue(self, role: Role, name: str, expires_s: float | None, uses: int | None, *, replaces: bool) -> str:
        """A new token, told this once. `uses` and `replaces` are for join secrets."""
        ...

    def all(self) -> tuple[TokenView, ...]:
        """Every token there ever was, oldest first."""
        ...

    def rotate(self, role: Role, name: str, overlap_s: float, expires_s: float | None) -> str:
        """A new token for a name; those it has end after `overlap_s`."""
        ...

    def revoke(self, token_id: str) -> None:
        """End one token now."""
        ...


def credentials_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the server's options and ``--store``; it is called with `Credentials` as ``credentials``."""

    @click.option(
        "--store",
        metavar="CONFIG|URL",
        help="Not over the API: in the database of this remediator.yaml, or at this database URL.",
    )
    @connection_options
    @wraps(command)
    def with_credentials(
        *args: Any, store: str | None, url: str | None, token_file: Path | None, ca_file: Path | None, **kwargs: Any
    ) -> Any:
        if store is None:
            from healthctl.credentials.api_credentials import ApiCredentials

            return command(*args, credentials=ApiCredentials(connect_to_server(url, token_file, ca_file)), **kwargs)
        with require_extra("remediator"):
            from healthctl.credentials.database_credentials import open_database_credentials
        with open_database_credentials(store) as credentials:
            return command(*args, credentials=credentials, **kwargs)

    return with_credentials


def find_valid_tokens(tokens: tuple[TokenView, ...], role: Role, name: str, now: float) -> list[TokenView]:
    """Those of a name that are good at `now`; a Failure if there are none."""
    found = [t for t in tokens if (t.role, t.name) == (role, name) and token_state(t, now).startswith("good")]
    if not found:
        raise Failure(f"{role.value} {name} has no token that is good; 'healthctl token list' shows them")
    return found


def token_state(token: TokenView, now: float) -> str:
    """In a word: good, ended, revoked, used up."""
    if token.revoked_at is not None:
        return "revoked"
    if token.uses_left == 0:
        return "used up"
    return "good" if token.expires_at is None or token.expires_at > now else "ended"
