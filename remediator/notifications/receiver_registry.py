"""The registry of receivers. A new kind is one file and one line here."""

from __future__ import annotations

from remediator.notifications.alertmanager import Alertmanager
from remediator.notifications.opsgenie import Opsgenie
from remediator.notifications.pagerduty import PagerDuty
from remediator.notifications.slack import Slack
from remediator.notifications.smtp_mail import EmailReceiver
from remediator.notifications.standard_webhooks import PlainWebhook, StandardWebhook
from remediator.notifications.teams import Teams
from remediator.notifications.ticket import TicketWebhook

AnyReceiver = (
    StandardWebhook | PlainWebhook | Slack | Teams | PagerDuty | Opsgenie | Alertmanager | EmailReceiver | TicketWebhook
)
