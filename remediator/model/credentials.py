"""Who may speak: roles, and what is known of a token besides its text, which nobody keeps."""

from __future__ import annotations

import enum
import re

import msgspec

from vocabulary.identity import require_node_name

JOIN_S = 86400.0  # how long a join secret is good where nobody says: whoever holds one can take a name
_PATTERN = re.compile(r"[A-Za-z0-9._*?\[\]-]{1,255}")


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


def find_credential_misfit(role: Role, name: str, uses: int | None, *, replaces: bool) -> str:
    """Why there can be no such token; empty where there can. `uses` and `replaces` are words about join secrets."""
    if role is Role.JOIN:
        if _PATTERN.fullmatch(name) is None:
            return f"{name[:80]!r} is no pattern for node names; write one like gpu-*"
        return "" if uses is not None else "a join secret needs 'uses': how many nodes it serves"
    if uses is not None or replaces:
        return f"'{'uses' if uses is not None else 'replaces'}' is for join secrets; this is a token of {role.value} {name[:80]!r}"
    try:
        require_node_name(name)
    except ValueError as error:
        return str(error)
    return ""
