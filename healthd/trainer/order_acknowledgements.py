"""What this rank has answered to the orders in its mailbox, published on its beacon page."""

from __future__ import annotations

from healthd.trainer.beacons.beacon import Beacon, NullBeacon
from healthd.trainer.beacons.beacon_page import Acknowledgement, MailboxOrder, OrderOutcome
from vocabulary.clock import Clock


class OrderAcknowledgements:
    """The newest acknowledgement of each order; the beacon page shows the last one."""

    def __init__(self, beacon: Beacon | NullBeacon, clock: Clock) -> None:
        """Args: `beacon`: where they are published; `clock`: when an order was first seen."""
        self._beacon, self._clock = beacon, clock
        self._by_order: dict[str, Acknowledgement] = {}
        self._last: Acknowledgement | None = None

    def __contains__(self, order_id: str) -> bool:
        """Whether this order was acknowledged before."""
        return order_id in self._by_order

    def acknowledge(self, order: MailboxOrder, outcome: OrderOutcome, **changes: str | float) -> None:
        """Publish how far `order` is. Args: `changes`: further fields of the acknowledgement."""
        known = self._by_order.get(order.id) or Acknowledgement(order.id, outcome, self._clock.wall())
        answer = known._replace(outcome=outcome, **changes)  # type: ignore[arg-type]  # names are checked by _replace
        self._by_order[order.id] = self._last = answer
        self._beacon.acknowledge(answer)

    def report_exit(self, code: int) -> None:
        """Publish the exit code, for a launcher that cannot see it: torchrun exits with 1 whatever its ranks exit with."""
        answer = self._last or Acknowledgement("", OrderOutcome.FAILED, self._clock.wall())
        self._beacon.acknowledge(answer._replace(exit_code=code))
