"""The one table of receivers. A new kind is one file and one line here."""

from __future__ import annotations

from remediator.act.webhooks.alertmanager import Alertmanager
from remediator.act.webhooks.generic import Generic, Plain
from remediator.act.webhooks.mail import Mail
from remediator.act.webhooks.opsgenie import Opsgenie
from remediator.act.webhooks.pagerduty import PagerDuty
from remediator.act.webhooks.slack import Slack
from remediator.act.webhooks.teams import Teams
from remediator.act.webhooks.ticket import Ticket

AnyReceiver = Generic | Plain | Slack | Teams | PagerDuty | Opsgenie | Alertmanager | Mail | Ticket
