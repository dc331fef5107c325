"""The identity that a trusted reverse proxy asserts in headers. Pure.

The headers count only on the proxy's own connections and only if they occur once: a repeated one may come from the user.
"""

from __future__ import annotations

from collections.abc import Sequence

from remediator.model.credentials import Identity, Role
from remediator.server_config import TrustedProxy

NAME_MAX = 200
ID = "proxy:"  # no token's id has a colon
EVERYBODY = "*"


def identity_from_headers(proxy: TrustedProxy, users: Sequence[str], groups: Sequence[str]) -> Identity | None:
    """The identity in the proxy's headers; None if they name no user, several users, or a user without a role."""
    name = users[0].strip() if len(users) == 1 and len(groups) <= 1 else ""
    if not name or len(name) > NAME_MAX or not name.isprintable():
        return None
    theirs = {EVERYBODY, *(group.strip() for line in groups for group in line.split(",") if group.strip())}
    for role in (Role.ADMIN, Role.OPERATOR, Role.VIEWER):
        if theirs & set(getattr(proxy.roles, role.value)):
            return Identity(role, name, f"{ID}{name}")
    return None
