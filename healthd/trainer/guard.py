"""The guard: what a training loop wraps around its steps.

    with Guard.from_env(store=store) as guard:
        for step in range(first, last):
            with guard.step(step) as s:
                with s.section("forward"):
                    loss = train(step)
                s.report(loss=loss)
                if s.checkpoint_due:
                    s.saved(save(step))

Sections and reports are optional. While nothing is wrong a step costs two writes to the beacon and one look at the
mailbox, and a section two writes more. After the step in which `checkpoint_due` was true the guard raises `Leave`, a
SystemExit with the code of `exits`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType

from healthd.trainer.agreement import GRACEFUL, REVERT, STOP, Agreement, Dropped, LocalStore, Ruling, Store, why_no_vote
from healthd.trainer.beacon import Beacon, NullBeacon, open_beacon
from healthd.trainer.environment import read_environment
from healthd.trainer.exits import Exit, Leave, documented_code
from healthd.trainer.framework import Device, Framework, device_in_use, framework_in_use
from healthd.trainer.leaving import ExitGuard, exit_now, exit_within, say, say_last_words, within
from healthd.trainer.measures import Measures
from healthd.trainer.page import Acknowledgement, MailboxOrder, Outcome, Phase
from healthd.trainer.place import Groups, Place
from healthd.trainer.step import Step
from healthd.trainer.swap import Evictions, NextGeneration, NoSwap, Swap, carried_out_by_swap, is_growth
from healthd.trainer.termination import ORDER_ID, Termination
from vocabulary.clock import Clock, SystemClock

__all__ = ["GRACEFUL", "REVERT", "Guard", "Step"]

ABORT = "abort"  # as the others of agreement.py, of vocabulary.order.OrderKind
WATCH_SECONDS = 0.05
LATE_LOOKS = 4  # in a row: what was asked for in time may be agreed on between two of them
SNAPSHOT_SECONDS = 5.0
NOTICE_SNAPSHOT_SECONDS = 3.0  # what TERMINATION_SECONDS leave of those 30 s, with a second for the communicator
COMMUNICATOR_SECONDS = 1.0
LAST_WORDS_SECONDS = 2.0
SPARE_SECONDS = 4.0  # for all that should take no time: telling, flushing, threads that begin late
TEARDOWN_SECONDS = 10.0
LEAVE_SECONDS = 20.0
TERMINATION_SECONDS = 25.0  # below the 30 s most schedulers wait before SIGKILL
_GOES_ON = "this rank goes on in the next generation of the process group"

_log = logging.getLogger("healthd.trainer")

Snapshot = Callable[[float], "str | None"]
GoBack = Callable[[int], None]


class Guard:
    """One rank's protection: publishes its steps, agrees with its peers on orders, leaves when told."""

    def __init__(
        self,
        place: Place,
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
            place: who this rank is.
            beacon: its page.
            store: what the ranks share; None only makes sense for a job of one rank, else orders to save cannot be agreed.
            framework: None picks the adapter for what is imported already.
            device: None picks the GPU that is in use when the first step begins, if one is.
            clock: for tests.
            termination_seconds: how long the ranks may take to agree after SIGTERM; 0 leaves the signal alone.
        """
        self._swap: Swap = NoSwap()
        self._evictions = Evictions(self._swap, place.node)
        self._pid = os.getpid()
        self._place = place
        self._beacon = beacon
        self._clock = clock or SystemClock()
        self._framework = framework or framework_in_use()
        shared = store if store is not None or place.world > 1 else LocalStore()
        prefix = f"healthd/{place.job}/{place.attempt}"
        self._agreement = Agreement(shared, place.world, prefix) if shared is not None else None
        self._termination = Termination(self._clock, termination_seconds if shared is not None else 0.0)
        self._exit = ExitGuard()
        self._device = device
        self._measures = Measures(beacon, self._clock.monotonic if clock else time.monotonic)
        ends = self._end_agreed_step
        self._step = Step(self._measures, end=beacon.end_step, end_agreed=ends, saved=self._saved)
        self._answers: dict[str, Acknowledgement] = {}
        self._last_answer: Acknowledgement | None = None
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
        self._begin = self._begin_first

    @classmethod
    def from_env(
        cls,
        *,
        store: Store | None = None,
        framework: Framework | None = None,
        groups: Groups | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Guard:
        """The guard of this process, as its environment variables place it (see `environment`).

        Args:
            store: what the ranks share.
            framework: None picks the adapter for what is imported already.
            groups: where this rank stands among its peers; None reads that from the environment, too.
            environ: for tests.
        """
        environment = read_environment(os.environ if environ is None else environ)
        place = environment.place if groups is None else environment.place._replace(groups=groups)
        return cls(place, open_beacon(environment.beacon_directory, place), store, framework=framework)

    def enable_swap(self, swap: Swap) -> None:
        """Under a launcher that replaces the ranks of condemned nodes: this rank then goes on instead of leaving with them."""
        self._swap = swap
        self._evictions = Evictions(swap, self._place.node)

    def on_abort(self, snapshot: Snapshot) -> None:
        """What to save when the collective is stuck, from host memory only: gets seconds, may return a path."""
        self._snapshot = snapshot

    def on_revert(self, go_back: GoBack) -> None:
        """How to go back: gets a step, from which on checkpoints must not be gone on from.

        Called on every rank at the agreed step, before it leaves; what it does must be on disk when it returns. Without it
        this job cannot go back, and the order is answered so. If it raises, the job is not started again (93).
        """
        self._go_back = go_back

    @property
    def can_go_back(self) -> bool:
        """Whether `on_revert` was told."""
        return self._go_back is not None

    def rest_is_communication(self) -> None:
        """For adapters: from here on to its end, the section `backward` that is open is waiting for the other ranks."""
        self._measures.rest_is_communication()

    def step(self, step: int) -> Step:
        """Guard the step `step`: `with guard.step(n) as s:`. Each holds a collective of all ranks; all ranks make as many.

        The number is for people and for the answers: ten steps may pass between two, or an epoch begin at 0 again.
        """
        self._boundaries += 1
        order = self._poll()
        if order is not None or self._voting or self._termination.noticed or self._swap.noticed:
            self._boundary(step, order)
        self._begin(step)
        return self._step

    def __enter__(self) -> Guard:  # noqa: PYI034 - Self is Python 3.11's
        if isinstance(self._beacon, Beacon) or self._termination.listens:
            threading.Thread(target=self._watch, name="healthd-guard", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if os.getpid() != self._pid:
            return  # a forked child on its way out: the page and the signals are its parent's
        self._measures.settle()
        if isinstance(error, Leave):
            self._leave(error)
            return
        if error is not None:
            self._abort_ordered(self._watched.poll())  # a peer that aborted first is why our collective broke
        self._stop.set()
        with self._ending:  # the watcher may be aborting: then this never returns
            self._leaving = True
            self._termination.restore()
            self._exit.release()
            code = documented_code(error)
            if code == Exit.DONE:
                self._beacon.phase(Phase.DONE)
            elif code is not None:
                self._tell_exit(code)
            self._beacon.end()

    def _begin_first(self, step: int) -> None:
        """The first step: by now the loop has chosen its GPU."""
        self._begin = self._beacon.begin_step
        try:
            device = self._device or device_in_use()
            if device is not None and isinstance(self._beacon, Beacon):
                self._measures.use(device)
                self._beacon.identify(device.gpu())
        except Exception as error:  # noqa: BLE001 - a GPU or torch of any make: training goes on
            _log.warning("the GPU cannot be asked for its name: %s; training goes on", error)
        self._begin(step)

    def _boundary(self, step: int, order: MailboxOrder | None) -> None:
        """The slow path before a step: only while there is an order."""
        self._abort_ordered(order)
        order = None if order is None or self._is_spared(order, evict=False) else order
        if order is not None and (
            problem := why_no_vote(order.kind, can_go_back=self.can_go_back, can_agree=self._agreement is not None)
        ):
            if order.kind != ABORT:
                self._answer(order, Outcome.FAILED, detail=problem)
            order = None
        if self._agreement is None:
            return
        self._beacon.phase(Phase.AGREEING)
        orders = [new for new in (order, self._termination.take(), self._swap.take()) if new is not None]
        for new in orders:
            if new.id not in self._answers:
                self._answer(new, Outcome.SEEN)
        self._act(step, self._rule(orders))
        self._voting = self._agreement.pending

    def _rule(self, orders: list[MailboxOrder]) -> Ruling:
        assert self._agreement is not None  # noqa: S101 - _boundary has returned otherwise
        try:
            self._framework.synchronize()
            return self._agreement.at_boundary(self._boundaries, self._clock.wall(), *orders)
        except Exception as error:  # noqa: BLE001 - a device or store of any make
            if self._agreement.pending:  # its peers may act on its vote in this very step
                self._fail(str(error))
            return Ruling(dropped=tuple(Dropped(order, Outcome.FAILED, str(error)) for order in orders))

    def _act(self, step: int, ruling: Ruling) -> None:
        now = self._clock.wall()
        for agreed, number in ruling.agreed:
            self._answer(agreed, Outcome.AGREED, agreed_step=step + number - self._boundaries, agreed_at=now)
        for dropped, outcome, why in ruling.dropped:
            if why:
                say(logging.WARNING, "order %s: %s; training goes on", dropped.id, why)
            self._answer(dropped, outcome, detail=why)
        if not ruling.due:
            self._heed_signal(ruling)
            return
        self._due = ruling.due
        for order in ruling.due:
            self._answer(order, Outcome.AGREED, agreed_step=step)  # known only now where steps are not numbered by ones
        reverts = [due for due in ruling.due if due.kind == REVERT]
        if reverts:
            self._revert(min(due.before_step for due in reverts))
        self._step.checkpoint_due = True
        self._step.eject = self._condemned()
        self._step.swap = self._swap.enabled and carried_out_by_swap(ruling.due, GRACEFUL)
        self._saved_path = ""

    def _heed_signal(self, ruling: Ruling) -> None:
        """A signal that nobody saves for means what it always does, unless this rank is to leave soon with all the others."""
        assert self._agreement is not None  # noqa: S101 - there is no ruling otherwise
        if not self._agreement.agreed and any(dropped.order.id == ORDER_ID for dropped in ruling.dropped):
            self._termination.die()

    def _revert(self, before_step: int) -> None:
        """Leave before this step: what the ranks hold now is what must not be saved."""
        assert self._go_back is not None  # noqa: S101 - no vote without it
        try:
            self._go_back(before_step)
        except Exception as error:  # noqa: BLE001 - a loop's own deed, of any make: the ranks leave all the same
            say(logging.ERROR, "cannot go back before step %d", before_step, error=error)
            self._fail(f"cannot go back: {type(error).__name__}: {error}", Exit.NEVER_AGAIN)
        self._in_order = True
        raise Leave(Exit.CONDEMNED if self._condemned() else Exit.RELAUNCH)

    def _saved(self, path: str) -> None:
        self._saved_path = path
        now = self._clock.wall()
        for order in self._due:
            self._answer(order, Outcome.SAVED, saved_at=now, checkpoint=path)

    def _end_agreed_step(self, error: BaseException | None) -> None:
        grows = all(map(is_growth, self._due))
        if error is not None and (not isinstance(error, Exception) or self._swap.over or grows):
            return  # where it is over, the ranks that go have left already, and all copies were whole by then
        if error is not None:
            say(logging.ERROR, "saving at the agreed step failed", error=error)
            self._fail(f"{type(error).__name__}: {error}")
        if not self._saved_path:
            self._fail("the step ended without s.saved(path) although s.checkpoint_due was true")
        self._in_order = True
        if any(order.kind == STOP for order in self._due):
            raise Leave(Exit.NEVER_AGAIN, condemned=self._condemned())
        if self._step.swap and (self._swap.can_swap or grows):
            self._go_on_or_leave()
        raise Leave(Exit.CONDEMNED if self._condemned() else Exit.RELAUNCH)

    def _go_on_or_leave(self) -> None:
        """Only the ranks of the condemned nodes leave; the launcher hears it before the teardown, which may take seconds."""
        if self._condemned():
            self._swap.leave(Exit.CONDEMNED, "its node is condemned")
            return
        for order in self._due:
            self._answer(order, Outcome.LEFT, left_at=self._clock.wall(), detail=_GOES_ON)
        raise NextGeneration

    def _condemned(self) -> bool:
        return any(self._place.node in order.condemned for order in self._due)

    def _fail(self, why: str, code: Exit = Exit.ABORTED) -> None:
        say(logging.ERROR, "leaving without a fresh checkpoint: %s", why)
        orders = self._due or (self._agreement.forget() if self._agreement else ())
        for order in orders:
            self._answer(order, Outcome.FAILED, detail=why)
        raise Leave(code, condemned=any(self._place.node in order.condemned for order in orders))

    def _leave(self, leave: Leave) -> None:
        """An agreed leave: from here on a deadline runs."""
        with self._ending:
            self._leaving = True
        code = int(leave.code) if isinstance(leave.code, int) else int(Exit.ABORTED)
        self._exit.leave_within(LEAVE_SECONDS, code)
        self._beacon.phase(Phase.LEAVING)
        clean = self._in_order or code in (Exit.CONDEMNED, Exit.RELAUNCH)
        within(TEARDOWN_SECONDS, "teardown", self._framework.teardown if clean else self._framework.abort)
        now = self._clock.wall()
        for order in self._due:
            self._answer(order, Outcome.LEFT if clean else Outcome.FAILED, left_at=now)
        self._tell_exit(code)
        self._stop.set()

    def _answer(self, order: MailboxOrder, outcome: Outcome, **changes: str | float) -> None:
        known = self._answers.get(order.id) or Acknowledgement(order.id, outcome, self._clock.wall())
        answer = known._replace(outcome=outcome, **changes)  # type: ignore[arg-type]  # names are checked by _replace
        self._answers[order.id] = self._last_answer = answer
        self._beacon.acknowledge(answer)

    def _tell_exit(self, code: int) -> None:
        """For who can't see the code itself: torchrun ends with 1 whatever its ranks end with."""
        answer = self._last_answer or Acknowledgement("", Outcome.FAILED, self._clock.wall())
        self._beacon.acknowledge(answer._replace(exit_code=code))

    def _watch(self) -> None:
        """The watcher thread: an abort, and an end told by a signal, must work while the main thread is stuck in a collective."""
        late = 0
        while not self._stop.wait(WATCH_SECONDS):
            self._abort_ordered(self._watched.poll())
            overdue = self._termination.overdue()
            late = late + 1 if overdue is not None and self._out_of_time() else 0
            if overdue is not None and late >= LATE_LOOKS:
                self._abort_unless_leaving(overdue, NOTICE_SNAPSHOT_SECONDS)

    def _out_of_time(self) -> bool:
        """Whether a notice that ran out is to end this rank: not while all are about to act on an order, or do, within reason."""
        agreed = self._due or (self._agreement is not None and self._agreement.agreed)
        return not agreed or self._termination.out_of_time

    def _abort_ordered(self, order: MailboxOrder | None) -> None:
        if order is None or order.kind != ABORT or order.cancelled or order.expires_at < self._clock.wall():
            return
        if self._is_spared(order, evict=True):
            return
        self._abort_unless_leaving(order, SNAPSHOT_SECONDS)

    def _is_spared(self, order: MailboxOrder, *, evict: bool) -> bool:
        """Whether this rank goes on, because ranks of the condemned nodes alone are replaced, now or before."""
        if not (self._evictions.done(order) or (evict and self._evictions.ask(order))):
            return False
        if order.id not in self._answers:
            self._answer(order, Outcome.LEFT, left_at=self._clock.wall(), detail=_GOES_ON)
        return True

    def _abort_unless_leaving(self, order: MailboxOrder, snapshot_seconds: float) -> None:
        with self._ending:  # one thread aborts, and never one that is leaving in good order
            if not self._leaving:
                self._abort(order, snapshot_seconds)

    def _abort(self, order: MailboxOrder, snapshot_seconds: float) -> None:
        exit_within(snapshot_seconds + LAST_WORDS_SECONDS + COMMUNICATOR_SECONDS + SPARE_SECONDS, Exit.ABORTED)
        self._beacon.phase(Phase.ABORTING)
        self._answer(order, Outcome.SEEN)
        say(logging.ERROR, "order %s: aborting: %s", order.id, order.reason)
        path: list[str | None] = []
        if self._snapshot is not None:
            snapshot = self._snapshot
            within(snapshot_seconds, "snapshot", lambda: path.append(snapshot(snapshot_seconds)))
        saved = next(filter(None, path), "")
        self._answer(order, Outcome.ABORTED, left_at=self._clock.wall(), checkpoint=saved, exit_code=int(Exit.ABORTED))
        if self._place.node in order.condemned:
            within(LAST_WORDS_SECONDS, "last words", say_last_words)
        within(COMMUNICATOR_SECONDS, "communicator abort", self._framework.abort)
        exit_now(Exit.ABORTED)
