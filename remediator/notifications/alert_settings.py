"""The `alerts` part of the configuration: receivers by name, routes, quiet hours, the heartbeat."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from remediator.notifications.alert_routes import AlertRoute
from remediator.notifications.alertmanager import Alertmanager
from remediator.notifications.quiet_hours import QuietHours
from remediator.notifications.receiver import check_receiver_url
from remediator.notifications.receiver_registry import AnyReceiver
from remediator.notifications.standard_webhooks import PlainWebhook
from remediator.notifications.ticket import TicketWebhook
from vocabulary.finding import Severity


class AlertHeartbeat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A heartbeat to a URL, or (`receiver`) an alert that always fires at that Alertmanager."""

    url: str = ""  # target of the POST
    url_file: str = ""  # file with the URL
    ca_file: str = ""  # CA of the server's certificate; empty: the system's
    receiver: str = ""  # of kind alertmanager, instead of a URL
    every_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 60.0  # between two
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0  # for each

    def __post_init__(self) -> None:
        if not self.receiver:
            check_receiver_url(self.url, self.url_file)
        elif self.url or self.url_file:
            raise ValueError("give a 'receiver' or a URL, not both")


class AlertSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who receives alerts and tickets, and when.

    `webhooks` is the short form: each URL becomes a receiver of kind `plain` that gets everything.
    """

    webhooks: tuple[str, ...] = ()  # the short form: URLs
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0  # of those
    receivers: dict[str, AnyReceiver] = {}  # by name
    routes: tuple[AlertRoute, ...] = ()  # the first match; empty: tickets to ticket receivers, alerts to all others
    quiet_hours: tuple[QuietHours, ...] = ()  # messages that do not page wait until they end
    page: tuple[Severity, ...] = (Severity.ERROR, Severity.FATAL)  # severities that page at any hour
    public_url: str = ""  # URL of the controller for operators
    node_labels: dict[str, dict[str, str]] = {}  # node pattern to labels, for routes and messages
    heartbeat: AlertHeartbeat | None = None
    give_up_s: Annotated[float, msgspec.Meta(ge=60, le=30 * 86400)] = 3 * 86400.0  # then a dead letter

    def __post_init__(self) -> None:
        if self.public_url and not self.public_url.startswith(("http://", "https://")):
            raise ValueError("public_url must begin with http:// or https://")
        known = self.everyone
        for name in known:
            if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name) is None:
                raise ValueError(f"the receiver '{name}': a name may contain letters, digits, '-' and '_'")
        for number, route in enumerate(self.routes, 1):
            for name in route.receivers:
                if name not in known:
                    raise ValueError(
                        f"route {number} names the receiver '{name}'; configured: {', '.join(known) or 'none'}"
                    )
        if self.routes and not self.routes[-1].unconditional:
            raise ValueError("the last route must match everything (no conditions), so that every alert has a receiver")
        beat = self.heartbeat.receiver if self.heartbeat is not None else ""
        if beat and not isinstance(known.get(beat), Alertmanager):
            raise ValueError(f"heartbeat: '{beat}' is not a receiver of kind alertmanager")

    @property
    def everyone(self) -> dict[str, AnyReceiver]:
        """Return all receivers by name, including the short form's."""
        plain = {
            f"webhook-{number}": PlainWebhook(url=url, timeout_s=self.timeout_s)
            for number, url in enumerate(self.webhooks, 1)
        }
        return {**plain, **self.receivers}

    @property
    def ways(self) -> tuple[AlertRoute, ...]:
        """Return the routes; by default, tickets go to ticket-only receivers, if any, and the rest to all others."""
        if self.routes:
            return self.routes
        tickets = tuple(name for name, one in self.everyone.items() if isinstance(one, TicketWebhook))
        others = tuple(name for name in self.everyone if name not in tickets)
        return (AlertRoute(receivers=(*tickets, *others), kinds=("ticket",)), AlertRoute(receivers=others))
