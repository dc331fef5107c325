"""Credentials over the API, for an admin."""

from __future__ import annotations

import re
from urllib.parse import quote

from healthctl.api_client.remediator_client import RemediatorClient
from healthctl.exit_codes import Failure
from remediator.model.credentials import Role, TokenList, TokenView
from remediator.model.views import Rotation, TokenWish
from vocabulary.messages.wire import NewToken

_TOKEN = re.compile(r"ghd_[A-Za-z0-9_-]+")


class ApiCredentials:
    """`Credentials` through the API of a server."""

    def __init__(self, server: RemediatorClient) -> None:
        self._server = server

    def issue(self, role: Role, name: str, expires_s: float | None, uses: int | None, *, replaces: bool) -> str:
        """See `Credentials`."""
        return _require_token(
            self._server.exchange("/v1/tokens", TokenWish(role, name, expires_s, uses, replaces), NewToken)
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
