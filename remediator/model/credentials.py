"""Who may speak: roles, and what is known of a token besides its text, which nobody keeps."""

from __future__ import annotations

import enum

import msgspec


class Role(str, enum.Enum):
    """What a token may do. Who may change things may also look at them."""

    VIEWER = "viewer"  # reads
    OPERATOR = "operator"  # reads, approves, acknowledges, notes, resolves
    ADMIN = "admin"  # the same, and tokens
    NODE = "node"  # speaks for one node
    JOIN = "join"  # gives nodes a token of their own, and nothing else


class Identity(msgspec.Struct, frozen=True):
    """Whom a token speaks for. `id` names the token where people may see it; of a join secret, `name` is a pattern."""

    role: Role
    name: str
    id: str = ""
    expires_at: float | None = None

    def valid(self, now: float) -> bool:
        """Whether it has not ended yet."""
        return self.expires_at is None or now < self.expires_at


class TokenView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One token as people may see it. Times are UTC seconds."""

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
