"""Alert routes: the first match, and those after it while a route says `continue`."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from remediator.model.delivery import NotificationMessage
from vocabulary.finding import Severity


class AlertRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"more": "continue"}):
    """All given conditions must match; patterns are shell patterns. Without conditions it matches everything."""

    receivers: tuple[str, ...]  # by name
    severities: tuple[Severity, ...] = ()  # of the message
    kinds: tuple[Literal["alert", "ticket"], ...] = ()  # alert, ticket
    nodes: tuple[str, ...] = ()  # patterns
    rules: tuple[str, ...] = ()  # patterns
    labels: dict[str, str] = {}  # name to pattern
    drill: bool | None = None  # true: only drills; false: none
    more: bool = False  # try the routes after this one, too

    @property
    def unconditional(self) -> bool:
        """Whether it matches everything."""
        conditions = (self.severities, self.kinds, self.nodes, self.rules, self.labels)
        return not any(conditions) and self.drill is None and not self.more

    def fits(self, message: NotificationMessage) -> bool:
        """Return whether the message takes this route."""
        return (
            (not self.severities or message.severity in self.severities)
            and (not self.kinds or message.kind in self.kinds)
            and (not self.nodes or any(fnmatchcase(message.node, pattern) for pattern in self.nodes))
            and (not self.rules or any(fnmatchcase(message.rule, pattern) for pattern in self.rules))
            and all(fnmatchcase(message.labels.get(name, ""), pattern) for name, pattern in self.labels.items())
            and self.drill in {None, message.injected}
        )


def match_receivers(message: NotificationMessage, routes: tuple[AlertRoute, ...]) -> tuple[str, ...]:
    """Return the names of the receivers, each once, in the routes' order."""
    names: dict[str, None] = {}
    for route in routes:
        if route.fits(message):
            names.update(dict.fromkeys(route.receivers))
            if not route.more:
                break
    return tuple(names)


def match_node_labels(node: str, patterns: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return a node's labels from shell patterns over names; later patterns go first."""
    found: dict[str, str] = {}
    for pattern, labels in patterns.items():
        if fnmatchcase(node, pattern):
            found.update(labels)
    return found
