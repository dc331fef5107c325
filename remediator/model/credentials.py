"""Credentials: roles, and what is stored of a token (never its text)."""

from __future__ import annotations

import enum
import re

import msgspec

from vocabulary.identity import require_node_name

JOIN_S = 86400.0  # default lifetime of a join secret: whoever has one can claim a node name
_PATTERN = re.compile(r"[A-Za-z0-9._*?\[\]-]{1,255}")


class Role(str, enum.Enum):
    """What a token may do. Every role that may change things may also read them."""

    VIEWER = "viewer"  # reads
    OPERATOR = "operator"  # reads, approves, acknowledges, notes, resolves
    ADMIN = "admin"  # the same, and tokens
    NODE = "node"  # acts for one node
    INGEST = "ingest"  # delivers nodes' messages from NATS and fetches their orders
    JOIN = "join"  # gives nodes a token of their own, and nothing else


class Identity(msgspec.Struct, frozen=True):
    """The owner of a token. `id` identifies the token to operators; of a join secret, `name` is a pattern."""

    role: Role
    name: str
    id: str = ""
    expires_at: float | None = None

    def valid(self, now: float) -> bool:
        """Return whether it has not expired yet."""
        return self.expires_at is None or now < self.expires_at


class TokenView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One token for operators, without its text. Times are UTC seconds."""

    id: str
    role: Role
    name: str
    issued_at: float
    issued_by: str = ""
    expires_at: float | None = None
    revoked_at: float | None = None
    uses_left: int | None = None
    replaces: bool = False


class TokenList(msgspec.Struct, frozen=True):
    """`GET /v1/tokens`, oldest first."""

    tokens: tuple[TokenView, ...]


def find_credential_misfit(role: Role, name: str, uses: int | None, *, replaces: bool) -> str:
    """Return why such a token is impossible; empty if it is not. `uses` and `replaces` apply to join secrets."""
    if role is Role.JOIN:
        if _PATTERN.fullmatch(name) is None:
            return f"{name[:80]!r} is not a pattern for node names; write one like gpu-*"
        return "" if uses is not None else "a join secret needs 'uses': the number of nodes that may use it"
    if uses is not None or replaces:
        return f"'{'uses' if uses is not None else 'replaces'}' applies only to join secrets; this is a token of {role.value} {name[:80]!r}"
    try:
        require_node_name(name)
    except ValueError as error:
        return str(error)
    return ""
