"""Trainer orders: into the mailbox of every rank of the job on this node, then watch the ranks answer and leave."""

from __future__ import annotations

from collections.abc import Sequence

from healthd.orders.task import Data, says
from healthd.trainer.owners import claim_of, owners_of
from healthd.trainer.page import Acknowledgement, BeaconError, MailboxOrder, Outcome
from healthd.trainer.pages import BeaconView, post_order, read_all
from vocabulary.order import Order, OrderKind, OrderState, OrderUpdate

DETAIL_CHARS_MAX = 1000
_THROUGH = frozenset({Outcome.LEFT, Outcome.ABORTED, Outcome.FAILED, Outcome.CANCELLED, Outcome.EXPIRED})


class TrainerTask:
    """Holds no truth of its own: the pages say who was ordered what, so a restarted daemon goes on where it was."""

    def __init__(self, order: Order, answer: OrderUpdate, beacon_dir: str) -> None:
        self._order = order
        self._directory = beacon_dir
        self._data: Data = dict(answer.data)
        self._posted: set[str] = set()

    def step(self, now: float) -> OrderUpdate | None:
        """First the mailboxes, then the agreement, then the end."""
        views = self._owners([view for view in read_all(self._directory)[0] if view.identity.job == self._order.job])
        if not self._posted:
            return self._post(views, now)
        ranks = [view for view in views if view.path in self._posted]
        before = dict(self._data)
        self._data |= collect([answer for view in ranks if (answer := self._answer_of(view)) is not None])
        still_there = [view for view in ranks if not self._is_through(view)]
        if not still_there:
            return self._conclude(ranks, now)
        if now >= self._order.expires_at:
            names = ", ".join(f"{view.identity.rank} (pid {view.identity.pid})" for view in still_there)
            return self._says(OrderState.FAILED, now, f"still running when the order expired: rank {names}")
        if self._data != before:
            return self._says(OrderState.RUNNING, now, f"{len(still_there)} ranks to go")
        return None

    def close(self) -> None:
        """The ranks go on by themselves."""

    def _owners(self, views: Sequence[BeaconView]) -> Sequence[BeaconView]:
        """Of the job's pages those of its owner: of who was held to be it when the order came, though he have left since."""
        owner = self._data.get("owner")
        if owner is None:
            found = owners_of(map(claim_of, views)).get(self._order.job)
            owner = found.uid if found is not None else None
        return [view for view in views if owner in (None, view.uid)]

    def _post(self, views: Sequence[BeaconView], now: float) -> OrderUpdate:
        """Order the ranks of one attempt: the order's own, or, where it names none, the newest that lives."""
        ours = self._order.attempt
        of_job = [view for view in views if ours in (None, view.identity.attempt)]
        told = [view for view in of_job if self._was_told(view)]
        attempt = max((view.identity.attempt for view in told or of_job if told or view.alive), default=None)
        targets = [view for view in of_job if view.identity.attempt == attempt and (view.alive or view in told)]
        if not targets:
            self._data["ranks"] = 0
            return self._says(OrderState.SUCCEEDED, now, f"no rank of job {self._order.job} runs on this node")
        problems = []
        for view in targets:
            try:
                post_order(view.path, _mailbox_order(self._order))
                self._posted.add(view.path)
            except (BeaconError, OSError) as error:
                problems.append(str(error))
        self._data = {"mailbox_at": now} | self._data | {"ranks": len(targets), "owner": targets[0].uid}
        if not self._posted:
            return self._says(OrderState.FAILED, now, "; ".join(problems))
        return self._says(OrderState.RUNNING, now, "; ".join(["in the mailboxes", *problems]))

    def _conclude(self, ranks: Sequence[BeaconView], now: float) -> OrderUpdate:
        """All are through with it: did they do what was asked?"""
        if self._order.kind is OrderKind.ABORT:
            return self._says(OrderState.SUCCEEDED, now, f"{len(ranks)} ranks left")
        answers = [self._answer_of(view) for view in ranks]
        reverts = self._order.kind is OrderKind.REVERT
        problems = [
            f"rank {view.identity.rank} {_what_happened(answer)}"
            for view, answer in zip(ranks, answers, strict=True)
            if answer is None or not (answer.outcome is Outcome.LEFT if reverts else answer.saved_at > 0)
        ]
        if len(ranks) < len(self._posted):
            problems.append(f"{len(self._posted) - len(ranks)} pages vanished")
        if not problems:
            did = "left without saving" if reverts else "saved and left"
            return self._says(OrderState.SUCCEEDED, now, f"{len(ranks)} ranks {did}")
        expired = all(answer is not None and answer.outcome is Outcome.EXPIRED for answer in answers)
        return self._says(OrderState.EXPIRED if expired else OrderState.FAILED, now, "; ".join(problems))

    def _answer_of(self, view: BeaconView) -> Acknowledgement | None:
        answer = view.acknowledgement
        return answer if answer is not None and answer.order == self._order.mailbox_id else None

    def _was_told(self, view: BeaconView) -> bool:
        return view.order is not None and view.order.id == self._order.mailbox_id

    def _is_through(self, view: BeaconView) -> bool:
        """It has left, or given up on this order, or was given another one in its place."""
        answer = self._answer_of(view)
        if answer is None:
            return not view.alive or not self._was_told(view)
        return not view.alive or answer.outcome in _THROUGH

    def _says(self, state: OrderState, now: float, detail: str) -> OrderUpdate:
        return says(self._order, state, now, detail[:DETAIL_CHARS_MAX], dict(self._data))


def collect(answers: Sequence[Acknowledgement]) -> Data:
    """What the ranks' answers say together: the step they agreed on, the latest of each time, the checkpoint."""
    data: Data = {}
    for name in ("agreed_at", "saved_at", "left_at"):
        latest = max((getattr(answer, name) for answer in answers), default=0.0)
        if latest > 0:
            data[name] = latest
    step = max((answer.agreed_step for answer in answers), default=-1)
    if step >= 0:
        data["agreed_step"] = step
    path = next((answer.checkpoint for answer in answers if answer.checkpoint), "")
    if path:
        data["path"] = path
    return data


def _what_happened(answer: Acknowledgement | None) -> str:
    return "ended without an answer" if answer is None else f"{answer.outcome.value} {answer.detail}".strip()


def _mailbox_order(order: Order) -> MailboxOrder:
    return MailboxOrder(
        id=order.mailbox_id,
        kind=order.kind.value,
        reason=order.reason,
        condemned=order.condemned,
        expires_at=order.expires_at,
        injected=order.injected,
        before_step=order.before_step,
    )
