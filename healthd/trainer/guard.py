"""The guard: a training loop wraps its steps in it.

    with Guard.from_env(store=store) as guard:
        for step in range(first, last):
            with guard.step(step) as s:
                with s.section("forward"):
                    loss = train(step)
                s.report(loss=loss)
                if s.checkpoint_due:
                    s.saved(save(step))

Sections and reports are optional. Without orders a step costs two writes to the beacon and one poll of the mailbox, and
a section two more writes. After the step in which `checkpoint_due` was true the guard raises `Leave`, a SystemExit with
a code of `exit_codes`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType

from healthd.trainer.agreement import (
    GRACEFUL,
    REVERT,
    STOP,
    Agreement,
    BoundaryDecision,
    DroppedOrder,
    LocalStore,
    Store,
    explain_vote_refusal,
)
from healthd.trainer.beacons.beacon import Beacon, NullBeacon, open_beacon
from healthd.trainer.beacons.beacon_page import MailboxOrder, OrderOutcome, Phase
from healthd.trainer.beacons.rank_environment import read_environment
from healthd.trainer.beacons.rank_placement import RankGroups, RankPlacement
from healthd.trainer.exit_codes import ExitCode, Leave, find_documented_code
from healthd.trainer.framework import Device, Framework, device_in_use, framework_in_use
from healthd.trainer.order_acknowledgements import OrderAcknowledgements
from healthd.trainer.process_exit import ExitGuard, log_without_blocking, run_within
from healthd.trainer.product_sampling import begin_and_sample
from healthd.trainer.rank_abort import RankAbort, Snapshot
from healthd.trainer.rank_replacement import (
    Evictions,
    NextGeneration,
    NoRankReplacer,
    RankReplacer,
    is_done_by_replacement,
    is_growth,
)
from healthd.trainer.stack_server import serve_stacks
from healthd.trainer.step_measurements import StepMeasurements
from healthd.trainer.termination_notices import ORDER_ID, TerminationNotices
from healthd.trainer.training_step import TrainingStep
from vocabulary.clock import Clock, SystemClock

__all__ = ["GRACEFUL", "REVERT", "Guard", "TrainingStep"]

ABORT = "abort"  # like those in agreement.py, a value of vocabulary.order.OrderKind
WATCH_SECONDS = 0.05
LATE_LOOKS = 4  # consecutive polls: a timely request may be agreed on between two of them
SNAPSHOT_SECONDS = 5.0
NOTICE_SNAPSHOT_SECONDS = 3.0  # what TERMINATION_SECONDS leave of those 30 s, with a second for the communicator
TEARDOWN_SECONDS = 10.0
LEAVE_SECONDS = 20.0
TERMINATION_SECONDS = 25.0  # below the 30 s most schedulers wait before SIGKILL
_GOES_ON = "this rank continues in the next generation of the process group"

_log = logging.getLogger("healthd.trainer")

GoBack = Callable[[int], None]


class Guard:
    """One rank's protection: publishes its steps, agrees with its peers on orders, and leaves when ordered."""

    def __init__(
        self,
        place: RankPlacement,
        beacon: Beacon | NullBeacon,
        store: Store | None,
        *,
        framework: Framework | None = None,
        device: Device | None = None,
        clock: Clock | None = None,
        termination_seconds: float = TERMINATION_SECONDS,
    ) -> None:
        """Prefer `from_env`.

        Args:
            place: this rank's placement.
            beacon: its page.
            store: the ranks' shared store; None is only for a job of one rank, as orders to save need agreement.
            framework: None picks the adapter for what is already imported.
            device: None picks the GPU in use when the first step begins, if any.
            clock: for tests.
            termination_seconds: time for the ranks to agree after SIGTERM; 0 does not handle the signal.
        """
        self._swap: RankReplacer = NoRankReplacer()
        self._evictions = Evictions(self._swap, place.node)
        self._pid = os.getpid()
        self._place = place
        self._beacon = beacon
        self._clock = clock or SystemClock()
        self._framework = framework or framework_in_use()
        shared = store if store is not None or place.world > 1 else LocalStore()
        prefix = f"healthd/{place.job}/{place.attempt}"
        self._agreement = Agreement(shared, place.world, prefix) if shared is not None else None
        self._termination = TerminationNotices(self._clock, termination_seconds if shared is not None else 0.0)
        self._exit = ExitGuard()
        self._device = device
        self._measures = StepMeasurements(beacon, self._clock.monotonic if clock else time.monotonic)
        ends = self._end_agreed_step
        self._step = TrainingStep(self._measures, end=beacon.end_step, end_agreed=ends, saved=self._saved)
        self._answers = OrderAcknowledgements(beacon, self._clock)
        self._answer = self._answers.acknowledge
        self._due: tuple[MailboxOrder, ...] = ()
        self._voting = False
        self._boundaries = 0  # counted here: a loop may number its steps as it likes
        self._saved_path = ""
        self._snapshot: Snapshot | None = None
        self._go_back: GoBack | None = None
        self._leaving = self._in_order = False
        self._ending = threading.Lock()
        self._stop = threading.Event()
        self._watched = beacon.mailbox()
        self._poll = beacon.poll
        self._begin: Callable[[int], None] = self._begin_first
        self._note_step: Callable[[], None] | None = None

    @classmethod
    def from_env(
        cls,
        *,
        store: Store | None = None,
        framework: Framework | None = None,
        groups: RankGroups | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Guard:
        """Return this process's guard, as its environment variables place it (see `rank_environment`).

        Args:
            store: the ranks' shared store.
            framework: None picks the adapter for what is already imported.
            groups: this rank's parallelism groups; None reads them from the environment.
            environ: for tests.
        """
        environment = read_environment(os.environ if environ is None else environ)
        place = environment.place if groups is None else environment.place._replace(groups=groups)
        return cls(place, open_beacon(environment.beacon_directory, place), store, framework=framework)

    def enable_swap(self, swap: RankReplacer) -> None:
        """Enable swaps under a launcher that replaces ranks: this rank then continues when others leave."""
        self._swap = swap
        self._note_step = swap.note_step
        self._evictions = Evictions(swap, self._place.node)

    def on_abort(self, snapshot: Snapshot) -> None:
        """Register what to save, from host memory only, in a stuck collective: gets seconds, may return a path."""
        self._snapshot = snapshot

    def on_revert(self, go_back: GoBack) -> None:
        """Register how to go back: gets a step; checkpoints of that step and later must not be used again.

        Called on every rank at the agreed step, before it leaves; its effect must be on disk when it returns. Without
        it this job cannot go back, and the order fails. If it raises, the job is not restarted (93).
        """
        self._go_back = go_back

    @property
    def can_go_back(self) -> bool:
        """Whether `on_revert` was called."""
        return self._go_back is not None

    def rest_is_communication(self) -> None:
        """Count the rest of the open `backward` section as waiting for other ranks. For adapters."""
        self._measures.rest_is_communication()

    def step(self, step: int) -> TrainingStep:
        """Guard a step: `with guard.step(n) as s:`. Each holds a collective of all ranks, and all make the same number.

        The number is for people and for the answers: it may skip steps or restart at 0 in each epoch.
        """
        self._boundaries += 1
        order = self._poll()
        if order is not None or self._voting or self._termination.noticed or self._swap.noticed:
            self._boundary(step, order)
        self._begin(step)
        if self._note_step is not None:
            self._note_step()
        return self._step

    def __enter__(self) -> Guard:  # noqa: PYI034 - Self is Python 3.11's
        if isinstance(self._beacon, Beacon) or self._termination.listens:
            threading.Thread(target=self._watch, name="healthd-guard", daemon=True).start()
        serve_stacks(self._beacon.path)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if os.getpid() != self._pid:
            return  # a forked child that exits: the page and the signals are its parent's
        self._measures.write_arrived()
        if isinstance(error, Leave):
            self._leave(error)
            return
        if error is not None:
            self._abort_ordered(self._watched.poll())  # a peer that aborted first broke this rank's collective
        self._stop.set()
        with self._ending:  # the watcher may be aborting: then this never returns
            self._leaving = True
            self._termination.restore()
            self._exit.release()
            code = find_documented_code(error)
            if code == ExitCode.DONE:
                self._beacon.phase(Phase.DONE)
            elif code is not None:
                self._answers.report_exit(code)
            self._beacon.end()

    def _begin_first(self, step: int) -> None:
        """Prepare the first step: the loop has chosen its GPU by now."""
        self._begin = begin_and_sample(self._beacon)
        try:
            device = self._device or device_in_use()
            if device is not None and isinstance(self._beacon, Beacon):
                self._measures.use(device)
                self._beacon.identify(device.gpu())
        except Exception as error:  # noqa: BLE001 - a GPU or torch of any make: training continues
            _log.warning("the GPU's name cannot be read: %s; training continues", error)
        self._begin(step)

    def _boundary(self, step: int, order: MailboxOrder | None) -> None:
        """Handle the boundary before a step while there is an order (the slow path)."""
        self._abort_ordered(order)
        order = None if order is None or self._is_spared(order, evict=False) else order
        if order is not None and (
            problem := explain_vote_refusal(
                order.kind, can_go_back=self.can_go_back, can_agree=self._agreement is not None
            )
        ):
            if order.kind != ABORT:
                self._answer(order, OrderOutcome.FAILED, detail=problem)
            order = None
        if self._agreement is None:
            return
        self._beacon.phase(Phase.AGREEING)
        orders = [new for new in (order, self._termination.take(), self._swap.take()) if new is not None]
        for new in orders:
            if new.id not in self._answers:
                self._answer(new, OrderOutcome.SEEN)
        self._act(step, self._rule(orders))
        self._voting = self._agreement.pending

    def _rule(self, orders: list[MailboxOrder]) -> BoundaryDecision:
        assert self._agreement is not None  # noqa: S101 - _boundary has returned otherwise
        try:
            self._framework.synchronize()
            return self._agreement.at_boundary(self._boundaries, self._clock.wall(), *orders)
        except Exception as error:  # noqa: BLE001 - a device or store of any make
            if self._agreement.pending:  # its peers may act on its vote in this step
                self._fail(str(error))
            return BoundaryDecision(
                dropped=tuple(DroppedOrder(order, OrderOutcome.FAILED, str(error)) for order in orders)
            )

    def _act(self, step: int, ruling: BoundaryDecision) -> None:
        now = self._clock.wall()
        for agreed, number in ruling.agreed:
            self._answer(agreed, OrderOutcome.AGREED, agreed_step=step + number - self._boundaries, agreed_at=now)
        for dropped, outcome, why in ruling.dropped:
            if why:
                log_without_blocking(logging.WARNING, "order %s: %s; training continues", dropped.id, why)
            self._answer(dropped, outcome, detail=why)
        if not ruling.due:
            self._heed_signal(ruling)
            return
        self._due = ruling.due
        for order in ruling.due:
            self._answer(order, OrderOutcome.AGREED, agreed_step=step)  # known only now if step numbers skip
        reverts = [due for due in ruling.due if due.kind == REVERT]
        if reverts:
            self._revert(min(due.before_step for due in reverts))
        self._step.checkpoint_due = True
        self._step.eject = self._condemned()
        self._step.swap = self._swap.enabled and is_done_by_replacement(ruling.due, GRACEFUL)
        self._saved_path = ""

    def _heed_signal(self, ruling: BoundaryDecision) -> None:
        """Apply a signal's usual effect if no save follows, unless this rank soon leaves with all others."""
        assert self._agreement is not None  # noqa: S101 - there is no ruling otherwise
        if not self._agreement.agreed and any(dropped.order.id == ORDER_ID for dropped in ruling.dropped):
            self._termination.die()

    def _revert(self, before_step: int) -> None:
        """Leave before this step without saving, because the ranks' state must be discarded."""
        assert self._go_back is not None  # noqa: S101 - no vote without it
        try:
            self._go_back(before_step)
        except Exception as error:  # noqa: BLE001 - a loop's own action, of any make: the ranks leave all the same
            log_without_blocking(logging.ERROR, "cannot go back before step %d", before_step, error=error)
            self._fail(f"cannot go back: {type(error).__name__}: {error}", ExitCode.NEVER_AGAIN)
        self._in_order = True
        raise Leave(ExitCode.CONDEMNED if self._condemned() else ExitCode.RELAUNCH)

    def _saved(self, path: str) -> None:
        self._saved_path = path
        now = self._clock.wall()
        for order in self._due:
            self._answer(order, OrderOutcome.SAVED, saved_at=now, checkpoint=path)

    def _end_agreed_step(self, error: BaseException | None) -> None:
        grows = all(map(is_growth, self._due))
        if error is not None and (not isinstance(error, Exception) or self._swap.over or grows):
            return  # where it has ended, the ranks that go have already left, and all copies were whole by then
        if error is not None:
            log_without_blocking(logging.ERROR, "saving at the agreed step failed", error=error)
            self._fail(f"{type(error).__name__}: {error}")
        if not self._saved_path:
            self._fail("the step ended without s.saved(path) although s.checkpoint_due was true")
        self._in_order = True
        if any(order.kind == STOP for order in self._due):
            raise Leave(ExitCode.NEVER_AGAIN, condemned=self._condemned())
        if self._step.swap and (self._swap.can_swap or grows):
            self._go_on_or_leave()
        raise Leave(ExitCode.CONDEMNED if self._condemned() else ExitCode.RELAUNCH)

    def _go_on_or_leave(self) -> None:
        """Let only the condemned nodes' ranks leave; notify the launcher before the slow teardown."""
        if self._condemned():
            self._swap.leave(ExitCode.CONDEMNED, "its node is condemned")
            return
        for order in self._due:
            self._answer(order, OrderOutcome.LEFT, left_at=self._clock.wall(), detail=_GOES_ON)
        raise NextGeneration

    def _condemned(self) -> bool:
        return any(self._place.node in order.condemned for order in self._due)

    def _fail(self, why: str, code: ExitCode = ExitCode.ABORTED) -> None:
        log_without_blocking(logging.ERROR, "leaving without a fresh checkpoint: %s", why)
        orders = self._due or (self._agreement.forget() if self._agreement else ())
        for order in orders:
            self._answer(order, OrderOutcome.FAILED, detail=why)
        raise Leave(code, condemned=any(self._place.node in order.condemned for order in orders))

    def _leave(self, leave: Leave) -> None:
        """Leave as agreed: a deadline runs from here on."""
        with self._ending:
            self._leaving = True
        code = int(leave.code) if isinstance(leave.code, int) else int(ExitCode.ABORTED)
        self._exit.leave_within(LEAVE_SECONDS, code)
        self._beacon.phase(Phase.LEAVING)
        clean = self._in_order or code in (ExitCode.CONDEMNED, ExitCode.RELAUNCH)
        run_within(TEARDOWN_SECONDS, "teardown", self._framework.teardown if clean else self._framework.abort)
        now = self._clock.wall()
        for order in self._due:
            self._answer(order, OrderOutcome.LEFT if clean else OrderOutcome.FAILED, left_at=now)
        self._answers.report_exit(code)
        self._stop.set()

    def _watch(self) -> None:
        """Handle aborts and signals in the watcher thread, as the main thread may be stuck in a collective."""
        late = 0
        while not self._stop.wait(WATCH_SECONDS):
            self._abort_ordered(self._watched.poll())
            overdue = self._termination.overdue()
            late = late + 1 if overdue is not None and self._out_of_time() else 0
            if overdue is not None and late >= LATE_LOOKS:
                self._abort_unless_leaving(overdue, NOTICE_SNAPSHOT_SECONDS)

    def _out_of_time(self) -> bool:
        """Return whether an expired signal must end this rank: not while all act on an order, within limits."""
        agreed = self._due or (self._agreement is not None and self._agreement.agreed)
        return not agreed or self._termination.out_of_time

    def _abort_ordered(self, order: MailboxOrder | None) -> None:
        if order is None or order.kind != ABORT or order.cancelled or order.expires_at < self._clock.wall():
            return
        if self._is_spared(order, evict=True):
            return
        self._abort_unless_leaving(order, SNAPSHOT_SECONDS)

    def _is_spared(self, order: MailboxOrder, *, evict: bool) -> bool:
        """Return whether this rank continues, because only the condemned nodes' ranks are replaced, now or before."""
        if not (self._evictions.done(order) or (evict and self._evictions.ask(order))):
            return False
        if order.id not in self._answers:
            self._answer(order, OrderOutcome.LEFT, left_at=self._clock.wall(), detail=_GOES_ON)
        return True

    def _abort_unless_leaving(self, order: MailboxOrder, snapshot_seconds: float) -> None:
        with self._ending:  # one thread aborts, and never one that is leaving as agreed
            if not self._leaving:
                abort = RankAbort(self._beacon, self._framework, self._snapshot, self._answer)
                abort.run(order, snapshot_seconds, self._clock.wall, condemned=self._place.node in order.condemned)
