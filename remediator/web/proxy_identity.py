"""Who a reverse proxy says somebody is. Pure.

Its word counts only on its own connections, and only where it says one thing: a header that came twice may be the user's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from remediator.model.credentials import Identity, Role
from remediator.server_config import TrustedProxy

NAME_MAX = 200
ID = "proxy:"  # no token's id has a colon
EVERYBODY = "*"


def identity_from_headers(proxy: TrustedProxy, users: Sequence[str], groups: Sequence[str]) -> Identity | None:
    """Whom the proxy's headers name; None where they name nobody, several, or somebody without a role here."""
    name = users[0].strip() if len(users) == 1 and len(groups) <= 1 else ""
    if not name or len(name) > NAME_MAX or not name.isprintable():
        return None
    theirs = {EVERYBODY, *(group.strip() for line in groups for group in line.split(",") if group.strip())}
    for role in (Role.ADMIN, Role.OPERATOR, Role.VIEWER):
        if theirs & set(getattr(proxy.roles, role.value)):
            return Identity(role, name, f"{ID}{name}")
    return None
