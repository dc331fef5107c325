"""Performs durable orders, several at once, and makes every step durable before it is reported."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from healthd.config import Config
from healthd.host import SHORTAGES, CommandResult, Host
from healthd.orders.order_store import OrderStore
from healthd.orders.order_task import Data, HealthVerification, OrderTask, make_order_update
from healthd.orders.program_order import ProgramTask, fill_arguments, judge_preflight, judge_reset
from healthd.orders.reboot_order import RebootTask
from healthd.orders.trainer_order import TrainerTask
from healthd.storage.node_database import DatabaseCorrupt, DatabaseFull
from vocabulary.order import TRAINER_ORDERS, Order, OrderKind, OrderState, OrderUpdate

TICK_S = 0.05
DATABASE_PAUSE_S = 1.0
ORDERS_AT_ONCE_MAX = 16
DEFAULT_LEVEL = "gate"

_log = logging.getLogger("healthd.orders")


class OrderExecutor:
    """The executor thread. The main loop gets health verifications and ends the order with the findings it clears.

    `rest_nvml` stops all use of NVML on this node and returns whether that succeeded: a GPU in use cannot be reset.
    `evidence` makes the evidence task.
    """

    def __init__(
        self,
        config: Config,
        host: Host,
        orders: OrderStore,
        *,
        on_proof: Callable[[HealthVerification], None],
        on_answer: Callable[[], None],
        rest_nvml: Callable[[bool], bool],
        evidence: Callable[[Order], OrderTask],
    ) -> None:
        self._config = config
        self._host = host
        self._orders = orders
        self._on_proof = on_proof
        self._on_answer = on_answer
        self._rest_nvml = rest_nvml
        self._evidence = evidence
        self.on_preflight: Callable[[str, OrderUpdate], None] = lambda _level, _answer: None  # counts preflight results
        self._tasks: dict[str, OrderTask] = {}
        self._expiries: dict[str, float] = {}  # of the same orders
        self._short: set[str] = set()  # orders that had to wait for descriptors or memory
        self._proven: set[str] = set()
        self._resets: set[str] = set()
        self._store_failed_at = 0.0  # in monotonic seconds, not before
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._wake.set()  # an earlier process may have left open orders

    def wake(self) -> None:
        """Announce a new order. Callable from any thread."""
        self._wake.set()

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stop.set()
        self._wake.set()

    def run(self) -> None:
        """Perform orders until stopped; a failing disk only delays them."""
        while not self._stop.is_set():
            try:
                self.tick()
                busy = bool(self._tasks) or self._orders.has_failed_answers
                self._stop.wait(TICK_S) if busy else self._wake.wait()
            except (DatabaseFull, DatabaseCorrupt) as error:
                _log.error("orders wait for the node's database: %s", error)
                self._wake.set()
                self._stop.wait(DATABASE_PAUSE_S)
        for task in self._tasks.values():
            task.close()

    def tick(self) -> None:
        """Start new orders and advance those in progress.

        Raises:
            DatabaseFull, DatabaseCorrupt: a step could not be made durable; later ticks retry it.
        """
        if self._wake.is_set():
            self._wake.clear()
            for order, answer in self._orders.open():
                if order.id in self._tasks or order.id in self._proven:
                    continue
                if len(self._tasks) >= ORDERS_AT_ONCE_MAX:
                    self._wake.set()  # the rest starts as room becomes free
                    break
                self._take_up(order, answer)
        for order_id, task in list(self._tasks.items()):
            self._look_after(order_id, task)
        if self._resets and not self._resets & self._tasks.keys():
            self._resets.clear()
            self._rest_nvml(False)
        now = self._host.clock.monotonic()
        if self._orders.has_failed_answers and now >= self._store_failed_at:
            self._store_failed_at = now + DATABASE_PAUSE_S
            self._orders.store_failed_answers()

    def _take_up(self, order: Order, answer: OrderUpdate) -> None:
        now = self._host.clock.wall()
        refusal = self._refusal(order, now)
        if refusal is not None and answer.state is OrderState.RECEIVED:
            self._answer(refusal)
        else:
            self._tasks[order.id] = self._task(order, answer)
            self._expiries[order.id] = order.expires_at

    def _look_after(self, order_id: str, task: OrderTask) -> None:
        if self._orders.waits_for_disk(order_id):
            return
        news = self._step(order_id, task)
        if isinstance(news, HealthVerification):
            self._forget(order_id)
            self._proven.add(order_id)
            self._on_proof(news)
        elif news is not None:
            if news.state.final:
                self._forget(order_id)
            self._answer(news)

    def _step(self, order_id: str, task: OrderTask) -> OrderUpdate | HealthVerification | None:
        """Advance one task. A shortage of descriptors or memory is waited out until the order expires."""
        now = self._host.clock.wall()
        try:
            return task.step(now)
        except Exception as error:  # noqa: BLE001 - a broken task must end as a failed order, not as a dead thread
            if isinstance(error, OSError) and error.errno in SHORTAGES and now < self._expiries[order_id]:
                if order_id not in self._short:
                    _log.warning("order %s waits: %s", order_id, error)
                self._short.add(order_id)
                return None
            _log.exception("order %s", order_id)
            return OrderUpdate(id=order_id, state=OrderState.FAILED, at=now, detail=f"internal error: {error!r}")

    def _forget(self, order_id: str) -> None:
        del self._tasks[order_id], self._expiries[order_id]
        self._short.discard(order_id)

    def _answer(self, answer: OrderUpdate) -> None:
        _log.info("order %s: %s %s", answer.id, answer.state.value, answer.detail)
        self._orders.answer(answer)
        self._on_answer()

    def _refusal(self, order: Order, now: float) -> OrderUpdate | None:
        """Return why this node rejects the order; None if it accepts."""
        if order.node != self._config.node:
            return make_order_update(
                order, OrderState.REFUSED, now, f"for node {order.node}, this is {self._config.node}"
            )
        if order.kind not in self._config.orders.allow:
            return make_order_update(
                order, OrderState.REFUSED, now, f"orders.allow does not list {order.kind.value} on this node"
            )
        if order.kind in TRAINER_ORDERS and not order.job:
            return make_order_update(order, OrderState.REFUSED, now, "it names no job")
        if order.kind is OrderKind.REVERT and order.before_step < 0:
            return make_order_update(order, OrderState.REFUSED, now, "it names no step to go back to")
        if order.kind is OrderKind.RESET_GPU and not order.gpu:
            return make_order_update(order, OrderState.REFUSED, now, "it names no GPU")
        if now >= order.expires_at:
            return make_order_update(order, OrderState.EXPIRED, now, f"{now - order.expires_at:.1f} s too late")
        return None

    def _task(self, order: Order, answer: OrderUpdate) -> OrderTask:
        if order.kind in TRAINER_ORDERS:
            return TrainerTask(order, answer, str(self._config.beacon_dir))
        if order.kind is OrderKind.COLLECT_EVIDENCE:
            return self._evidence(order)
        words = {"node": order.node, "gpu": order.gpu, "level": order.level or DEFAULT_LEVEL}
        if order.kind is OrderKind.RESET_GPU:
            command = fill_arguments(self._config.orders.reset_gpu_command, words)
            self._resets.add(order.id)
            return ProgramTask(order, answer, command, self._host, judge_reset, lambda: self._rest_nvml(True))
        if order.kind is OrderKind.REBOOT:
            return RebootTask(order, answer, fill_arguments(self._config.orders.reboot_command, words), self._host)
        command = fill_arguments(self._config.orders.preflight_command, words)
        return ProgramTask(order, answer, command, self._host, self._judge_preflight)

    def _judge_preflight(
        self, order: Order, finished: CommandResult, data: Data, now: float
    ) -> OrderUpdate | HealthVerification:
        verdict = judge_preflight(order, finished, data, now)
        self.on_preflight(
            order.level or DEFAULT_LEVEL, verdict.answer if isinstance(verdict, HealthVerification) else verdict
        )
        return verdict
