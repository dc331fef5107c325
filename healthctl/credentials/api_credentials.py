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
    """`Credentials` of the cluster behind a server."""

    def __init__(self, server: RemediatorClient) -> None:
        self._server = server

    def issue(self, role: Role, name: str, expires_s: float | None, uses: int | None, *, replaces: bool) -> str:
        """As the protocol says."""
        return _require_token(
            self._server.exchange("/v1/tokens", TokenWish(role, name, expires_s, uses, replaces), NewToken)
        )

    def all(self) -> tuple[TokenView, ...]:
        """As the protocol says."""
        return self._server.get("/v1/tokens", TokenList).tokens

    def rotate(self, role: Role, name: str, overlap_s: float, expires_s: float | None) -> str:
        """As the protocol says."""
        return _require_token(
            self._server.exchange("/v1/tokens/rotate", Rotation(role, name, overlap_s, expires_s), NewToken)
        )

    def revoke(self, token_id: str) -> None:
        """As the protocol says."""
        self._server.post(f"/v1/tokens/{quote(token_id, safe='')}/revoke", None)


def _require_token(answer: NewToken) -> str:
    """What people paste into shells and files is a token, whatever the server says."""
    if _TOKEN.fullmatch(answer.token) is None:
        raise Failure("the server answered with no token (ghd_ and letters, digits, - or _); is it a remediator?")
    return answer.token
