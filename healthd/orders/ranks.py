"""The ranks that a trainer order went to, as they answer it, and what the answers amount to: each user's ranks by themselves.

Whatever a page says, it speaks for its own user only: who claims another one's job can neither answer for him nor hide
how he answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from healthd.orders.task import Data
from healthd.trainer.page import Acknowledgement, BeaconError, Outcome
from healthd.trainer.pages import BeaconView, process_alive, read
from vocabulary.counts import counted
from vocabulary.order import OrderKind, OrderState

USERS_TOLD = 8
DETAIL_CHARS = 200  # of one rank's
_THROUGH = frozenset({Outcome.LEFT, Outcome.ABORTED, Outcome.FAILED, Outcome.CANCELLED, Outcome.EXPIRED})
_REFUSED = frozenset({Outcome.CANCELLED, Outcome.EXPIRED})
_DID = {OrderKind.ABORT: "left", OrderKind.REVERT: "left without saving"}
_TIMES = ("agreed_at", "saved_at", "left_at")


class Rank(NamedTuple):
    """One process of the job, and the last that could be read of its page. `told`: its mailbox holds the order.

    `number` is -1 where only the page's name says that it may be one.
    """

    path: str
    uid: int
    number: int
    pid: int
    started: int
    alive: bool
    told: bool = False
    answer: Acknowledgement | None = None
    vanished: bool = False
    problem: str = ""

    @property
    def through(self) -> bool:
        """It has left, or given up on the order, or was given another one in its place."""
        if not self.alive:
            return True
        if self.answer is None:
            return not self.told and not self.problem
        return self.answer.outcome in _THROUGH


class Verdict(NamedTuple):
    """What became of one user's ranks, or of all."""

    state: OrderState
    detail: str


def unreadable(path: str, uid: int, problem: str) -> Rank:
    """A page that may be a rank's of the job, and cannot be read: nobody can say that it did anything."""
    return Rank(path, uid, -1, 0, 0, alive=False, problem=problem)


def rank_of(view: BeaconView, order: str) -> Rank:
    """A page's rank; `order` is the id that its mailbox may hold and its answer may be about."""
    answer, identity = view.acknowledgement, view.identity
    return Rank(
        path=view.path,
        uid=view.uid,
        number=identity.rank,
        pid=identity.pid,
        started=identity.process_start,
        alive=view.alive,
        told=view.order is not None and view.order.id == order,
        answer=answer._replace(detail=answer.detail[:DETAIL_CHARS]) if answer and answer.order == order else None,
    )


def looked_at_again(rank: Rank, order: str) -> Rank:
    """How the rank stands now. What cannot be read now is as it was; only its process can tell that it has ended."""
    now = _look(rank, order)
    return (
        _look(rank, order) if rank.alive and not now.alive else now
    )  # what it wrote last may have come after the look


def _look(rank: Rank, order: str) -> Rank:
    try:
        view = read(rank.path, 1)
    except FileNotFoundError:
        return rank._replace(vanished=True, alive=_still_alive(rank))
    except (BeaconError, OSError):
        return rank._replace(alive=_still_alive(rank))
    now = rank_of(view, order)
    if (now.pid, now.started) != (rank.pid, rank.started):  # its page was made anew by another process
        return rank._replace(vanished=True, alive=_still_alive(rank))
    return now._replace(
        uid=rank.uid,
        problem="" if now.told else rank.problem,
        told=rank.told if "mailbox" in view.damaged else now.told,
        answer=now.answer or (rank.answer if "acknowledgement" in view.damaged else None),
    )


def _still_alive(rank: Rank) -> bool:
    """Whether its process runs; as it was where that cannot be told now."""
    try:
        return process_alive(rank.pid, rank.started)
    except OSError:
        return rank.alive


def verdict_of(kind: OrderKind, ranks: Sequence[Rank]) -> Verdict:
    """Of one user's ranks that are all through: did they do what was asked?"""
    problems = [_named(rank) for rank in ranks if not _did(kind, rank)]
    if not problems:
        return Verdict(OrderState.SUCCEEDED, f"{counted(len(ranks), 'rank')} {_DID.get(kind, 'saved and left')}")
    expired = all(rank.answer is not None and rank.answer.outcome is Outcome.EXPIRED for rank in ranks)
    return Verdict(OrderState.EXPIRED if expired else OrderState.FAILED, "; ".join(problems))


def _did(kind: OrderKind, rank: Rank) -> bool:
    if rank.number < 0:
        return False
    if kind is OrderKind.ABORT:
        return not rank.alive or (rank.answer is not None and rank.answer.outcome not in _REFUSED)
    if rank.answer is None:
        return False
    return rank.answer.outcome is Outcome.LEFT if kind is OrderKind.REVERT else rank.answer.saved_at > 0


def _named(rank: Rank) -> str:
    return f"rank {rank.number} {_what_happened(rank)}" if rank.number >= 0 else rank.problem


def _what_happened(rank: Rank) -> str:
    if rank.answer is not None:
        return f"{rank.answer.outcome.value} {rank.answer.detail}".strip()
    if rank.alive:
        return "was given another order"
    return rank.problem or ("ended, and its page vanished" if rank.vanished else "ended without an answer")


def still_there(ranks: Sequence[Rank]) -> str:
    """Who is not through, for people."""
    return ", ".join(f"{rank.number} (pid {rank.pid})" for rank in ranks if not rank.through)


def of_all(by_user: dict[int, Verdict]) -> Verdict:
    """Several users' verdicts as one: good only if all are, as nobody knows whose job it is; the detail says each one's."""
    if len(by_user) == 1:
        return next(iter(by_user.values()))
    states = {verdict.state for verdict in by_user.values()}
    told = [f"user {uid}: {verdict.state.value}: {verdict.detail}" for uid, verdict in sorted(by_user.items())]
    more = [f"and {counted(len(told) - USERS_TOLD, 'user')} more"] if len(told) > USERS_TOLD else []
    state = states.pop() if len(states) == 1 else OrderState.FAILED
    chars = 940 // min(len(told), USERS_TOLD)
    return Verdict(state, "; ".join([*(each[:chars] for each in told[:USERS_TOLD]), *more]))


def figures(by_user: dict[int, list[Rank]], now: float) -> Data:
    """What the ranks' answers say together: the step they agreed on, the latest of each time, the checkpoint.

    Of several users the times alone, once all have told them, as each might invent a step and a path; these are under
    `user.UID.`.
    """
    each = {uid: collect([rank.answer for rank in ranks if rank.answer]) for uid, ranks in by_user.items()}
    if len(each) == 1:
        return next(iter(each.values()))
    data: Data = {
        name: min(now, max(float(told[name]) for told in each.values()))
        for name in _TIMES
        if all(name in told for told in each.values())
    }
    for uid, told in sorted(each.items())[:USERS_TOLD]:
        data |= {f"user.{uid}.{name}": value for name, value in told.items()}
    return data


def collect(answers: Sequence[Acknowledgement]) -> Data:
    """What one user's ranks say together."""
    data: Data = {}
    for name in _TIMES:
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
