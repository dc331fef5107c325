"""Operations on credentials, the same over the API and in the database. Times and durations are seconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import click

from healthctl.api_client.remediator_client import RemediatorClient, connect_to_server, connection_options
from healthctl.exit_codes import Failure, require_extra
from remediator.model.credentials import Role, TokenList, TokenView
from remediator.model.views import Rotation, TokenRequest
from vocabulary.messages.wire import NewToken

_TOKEN = re.compile(r"ghd_[A-Za-z0-9_-]+")


class Credentials(Protocol):
    """Tokens of one cluster. Every method raises Failure on error."""

    def issue(self, role: Role, name: str, expires_s: float | None, uses: int | None, *, replaces: bool) -> str:
        """A new token, shown only once. `uses` and `replaces` apply to join secrets."""

    def all(self) -> tuple[TokenView, ...]:
        """Every token ever issued, oldest first."""

    def rotate(self, role: Role, name: str, overlap_s: float, expires_s: float | None) -> str:
        """A new token for a name; its current tokens expire after `overlap_s`."""

    def revoke(self, token_id: str) -> None:
        """Revoke one token now."""


def credentials_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the server options and ``--store`` to a command, which receives `Credentials` as ``credentials``."""

    @click.option(
        "--store",
        metavar="CONFIG|URL",
        help="Use the database of this remediator.yaml, or at this database URL, instead of the API.",
    )
    @connection_options
    @wraps(command)
    def with_credentials(
        *args: Any, store: str | None, url: str | None, token_file: Path | None, ca_file: Path | None, **kwargs: Any
    ) -> Any:
        if store is None:
            return command(*args, credentials=ApiCredentials(connect_to_server(url, token_file, ca_file)), **kwargs)
        with require_extra("remediator"):
            from healthctl.credentials.database_credentials import open_database_credentials
        with open_database_credentials(store) as credentials:
            return command(*args, credentials=credentials, **kwargs)

    return with_credentials


def find_valid_tokens(tokens: tuple[TokenView, ...], role: Role, name: str, now: float) -> list[TokenView]:
    """The tokens of a name that are valid at `now`; raises a Failure if there is none."""
    found = [t for t in tokens if (t.role, t.name) == (role, name) and token_state(t, now).startswith("good")]
    if not found:
        raise Failure(f"{role.value} {name} has no valid token; see 'healthctl token list'")
    return found


def token_state(token: TokenView, now: float) -> str:
    """The state as one word: good, ended, revoked, used up."""
    if token.revoked_at is not None:
        return "revoked"
    if token.uses_left == 0:
        return "used up"
    return "good" if token.expires_at is None or token.expires_at > now else "ended"


class ApiCredentials:
    """`Credentials` through the API of a server."""

    def __init__(self, server: RemediatorClient) -> None:
        self._server = server

    def issue(self, role: Role, name: str, expires_s: float | None, uses: int | None, *, replaces: bool) -> str:
        """See `Credentials`."""
        return _require_token(
            self._server.exchange("/v1/tokens", TokenRequest(role, name, expires_s, uses, replaces), NewToken)
        )

    def all(self) -> tuple[TokenView, ...]:
        """See `Credentials`."""
        return self._server.get("/v1/tokens", TokenList).tokens

    def rotate(self, role: Role, name: str, overlap_s: float, expires_s: float | None) -> str:
        """See `Credentials`."""
        return _require_token(
            self._server.exchange("/v1/tokens/rotate", Rotation(role, name, overlap_s, expires_s), NewToken)
        )

    def revoke(self, token_id: str) -> None:
        """See `Credentials`."""
        self._server.post(f"/v1/tokens/{quote(token_id, safe='')}/revoke", None)


def _require_token(answer: NewToken) -> str:
    """Check the format: people paste the token into shells and files, whatever the server sends."""
    if _TOKEN.fullmatch(answer.token) is None:
        raise Failure(
            "the server did not return a token (ghd_ and letters, digits, - or _); check that it is a gpu-healthd controller"
        )
    return answer.token
