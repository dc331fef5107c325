"""The reboot order. It is done when the node runs under another boot id than at its start."""

from __future__ import annotations

from collections.abc import Sequence

from healthd.host import Host, RunningCommand
from healthd.orders.order_task import Data, make_order_update
from healthd.orders.program_order import ProgramStarter
from vocabulary.order import Order, OrderState, OrderUpdate

TEXT_CHARS_MAX = 1000


class RebootTask:
    """Records the boot id before the reboot; after a restart the new process compares."""

    def __init__(self, order: Order, answer: OrderUpdate, command: Sequence[str], host: Host) -> None:
        self._order = order
        self._data: Data = dict(answer.data)
        self._command = command
        self._host = host
        self._running: RunningCommand | None = None
        self._accepted = False
        self._starter = ProgramStarter(host, order, command)

    def step(self, now: float) -> OrderUpdate | None:
        """Record the boot id, start the reboot, and succeed under another boot id."""
        boot = self._host.boot_id()
        began_in = self._data.get("boot_id")
        if began_in is not None and began_in != boot:
            self._data["seconds"] = round(now - float(self._data["started_at"]), 3)
            return make_order_update(self._order, OrderState.SUCCEEDED, now, f"running under boot {boot}", self._data)
        if now >= self._order.expires_at:
            words = "the machine did not reboot" if self._accepted else self._starter.give_up()
            return make_order_update(self._order, OrderState.EXPIRED, now, words)
        if began_in is None:
            self._data |= {"boot_id": boot, "started_at": now}
            return make_order_update(
                self._order, OrderState.RUNNING, now, " ".join(self._command)[:TEXT_CHARS_MAX], self._data
            )
        return self._ask(now)

    def close(self) -> None:
        """Do nothing: the daemon most likely stops because of the reboot."""
        self._starter.give_up()
        if self._running is not None:
            self._running.close()

    def _ask(self, now: float) -> OrderUpdate | None:
        if self._accepted:
            return None
        if self._running is None:
            try:
                self._running = self._starter.start(now)
            except OSError as error:
                return self._failed(now, f"{self._command[0]} cannot be started: {error.strerror}")
            if self._running is None:
                return None
        finished = self._running.poll()
        if finished is None:
            return None
        self._running, self._accepted = None, finished.returncode == 0
        words = (finished.stderr.strip() or finished.stdout.strip())[-TEXT_CHARS_MAX:]
        return None if self._accepted else self._failed(now, f"exit {finished.returncode}: {words}")

    def _failed(self, now: float, words: str) -> OrderUpdate:
        return make_order_update(self._order, OrderState.FAILED, now, words, self._data)
