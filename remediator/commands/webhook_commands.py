"""`remediator webhooks`: tests a receiver, and lists deliveries."""

from __future__ import annotations

import time
from collections.abc import Iterator

from sqlalchemy.exc import SQLAlchemyError

from remediator.config import Config, ConfigError
from remediator.model.delivery import Delivery
from remediator.notifications import receiver_probe
from remediator.notifications.timestamps import format_rfc3339
from remediator.store.database import StoreError, open_engine, parse_database_url
from remediator.store.delivery_store import DeliveryStore
from vocabulary.text.plurals import format_count


def send_receiver_test(config: Config, name: str) -> Iterator[str]:
    """Send one test message, bypassing the outbox, and resolve it at once where receivers keep alerts open.

    Yields the results.

    Raises:
        ConfigError: there is no such receiver, or it did not accept the message.
    """
    receivers = config.alerts.everyone
    if name not in receivers:
        known = ", ".join(receivers) or "none; add one under 'alerts.receivers'"
        raise ConfigError(f"receiver '{name}' is not configured; configured: {known}")
    for phase, answer in receiver_probe.send_test_messages(
        config.alerts, config.cluster, name, "'remediator webhooks test'", time.time()
    ):
        if not answer.taken:
            raise ConfigError(f"{name} rejected the message ({phase.value}): {answer.words}")
        yield f"{name} accepted the message ({phase.value}): {answer.words}"


def list_deliveries(config: Config, limit: int) -> list[str]:
    """List deliveries with recipient and state, newest first. Only reads the database.

    Raises:
        ConfigError: there is no outbox yet, or 'database' is not a database.
    """
    try:
        engine = open_engine(parse_database_url(config.database))
    except StoreError as error:
        raise ConfigError(str(error)) from error
    try:
        found = DeliveryStore(engine).latest(limit)
    except SQLAlchemyError as error:
        raise ConfigError(
            f"the outbox cannot be read ({type(error).__name__}); check that the controller has run"
        ) from error
    finally:
        engine.dispose()
    return [_format_delivery_line(item) for item in found]


def _format_delivery_line(item: Delivery) -> str:
    why = f": {item.detail}" if item.detail else ""
    tries = f" after {format_count(item.attempts, 'attempt')}" if item.attempts > 1 else ""
    return f"{format_rfc3339(item.created_at)} {item.receiver} {item.state.value}{tries} {item.message.id}{why}"
