"""The ranks' answers to a trainer order and the result for each user.

A page counts for its own user only: a user who claims another's job can neither answer for the owner nor hide the
owner's answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from healthd.orders.order_task import Data
from healthd.trainer.beacons.beacon_page import Acknowledgement, BeaconError, OrderOutcome
from healthd.trainer.beacons.page_reader import BeaconView, process_alive, read_page
from vocabulary.order import OrderKind, OrderState
from vocabulary.text.plurals import format_count

USERS_TOLD = 8
DETAIL_CHARS = 200  # per rank
PAGE_REMADE = "its page was made again, without the order"
_THROUGH = frozenset(
    {OrderOutcome.LEFT, OrderOutcome.ABORTED, OrderOutcome.FAILED, OrderOutcome.CANCELLED, OrderOutcome.EXPIRED}
)
_REFUSED = frozenset({OrderOutcome.CANCELLED, OrderOutcome.EXPIRED})
_DID = {OrderKind.ABORT: "left", OrderKind.REVERT: "left without saving"}
_TIMES = ("agreed_at", "saved_at", "left_at")


class OrderedRank(NamedTuple):
    """One process of the job, with the last readable state of its page. `told`: its mailbox holds the order.

    `number` is -1 if only the page's name suggests a rank.
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
        """Return whether it has left, given up on the order, or received another one instead."""
        if not self.alive:
            return True
        if self.answer is None:
            return not self.told and not self.problem
        return self.answer.outcome in _THROUGH


class RankVerdict(NamedTuple):
    """The result of one user's ranks, or of all."""

    state: OrderState
    detail: str


def make_unreadable_rank(path: str, uid: int, problem: str) -> OrderedRank:
    """Record a page that may belong to a rank of the job but cannot be read, so that its progress is unknown."""
    return OrderedRank(path, uid, -1, 0, 0, alive=False, problem=problem)


def make_ordered_rank(view: BeaconView, order: str) -> OrderedRank:
    """Build a rank from its page; `order` is the id that its mailbox and its answer may refer to."""
    answer, identity = view.acknowledgement, view.identity
    return OrderedRank(
        path=view.path,
        uid=view.uid,
        number=identity.rank,
        pid=identity.pid,
        started=identity.process_start,
        alive=view.alive,
        told=view.order is not None and view.order.id == order,
        answer=answer._replace(detail=answer.detail[:DETAIL_CHARS]) if answer and answer.order == order else None,
    )


def refresh_rank(rank: OrderedRank, order: str) -> OrderedRank:
    """Read the rank again. If the page is unreadable, its state stays; only its process can show that it has ended."""
    now = _read_rank_page(rank, order)
    return (
        _read_rank_page(rank, order) if rank.alive and not now.alive else now
    )  # its last write may have followed the read


def _read_rank_page(rank: OrderedRank, order: str) -> OrderedRank:
    try:
        view = read_page(rank.path, 1)
    except FileNotFoundError:
        return rank._replace(vanished=True, alive=_is_process_alive(rank))
    except (BeaconError, OSError):
        return rank._replace(alive=_is_process_alive(rank))
    now = make_ordered_rank(view, order)
    if (now.pid, now.started) != (rank.pid, rank.started):  # another process has recreated its page
        return rank._replace(vanished=True, alive=_is_process_alive(rank))
    remade = rank.told and view.order is None and "mailbox" not in view.damaged  # by the same process, as it is alive
    return now._replace(
        uid=rank.uid,
        problem="" if now.told else rank.problem or PAGE_REMADE * remade,
        told=rank.told if "mailbox" in view.damaged else now.told,
        answer=now.answer or (rank.answer if "acknowledgement" in view.damaged else None),
    )


def _is_process_alive(rank: OrderedRank) -> bool:
    """Return whether its process runs; unchanged if that cannot be determined now."""
    try:
        return process_alive(rank.pid, rank.started)
    except OSError:
        return rank.alive


def judge_user_ranks(kind: OrderKind, ranks: Sequence[OrderedRank]) -> RankVerdict:
    """Return the result of one user's ranks that have all finished."""
    problems = [_describe_rank(rank) for rank in ranks if not _has_obeyed(kind, rank)]
    if not problems:
        return RankVerdict(
            OrderState.SUCCEEDED, f"{format_count(len(ranks), 'rank')} {_DID.get(kind, 'saved and left')}"
        )
    expired = all(rank.answer is not None and rank.answer.outcome is OrderOutcome.EXPIRED for rank in ranks)
    return RankVerdict(OrderState.EXPIRED if expired else OrderState.FAILED, "; ".join(problems))


def _has_obeyed(kind: OrderKind, rank: OrderedRank) -> bool:
    if rank.number < 0:
        return False
    if kind is OrderKind.ABORT:
        return not rank.alive or (rank.answer is not None and rank.answer.outcome not in _REFUSED)
    if rank.answer is None:
        return False
    left = rank.answer.outcome is OrderOutcome.LEFT
    if kind is OrderKind.REVERT:
        return left
    # A rank that has left without an agreed step goes on in place, and the nodes of the order hold none any more.
    return rank.answer.saved_at > 0 or (left and rank.answer.agreed_step < 0)


def _describe_rank(rank: OrderedRank) -> str:
    return f"rank {rank.number} {_describe_outcome(rank)}" if rank.number >= 0 else rank.problem


def _describe_outcome(rank: OrderedRank) -> str:
    if rank.answer is not None:
        return f"{rank.answer.outcome.value} {rank.answer.detail}".strip()
    if rank.alive:
        return "received another order"
    return rank.problem or ("ended, and its page is missing" if rank.vanished else "ended without an answer")


def describe_remaining_ranks(ranks: Sequence[OrderedRank]) -> str:
    """Describe the ranks that have not finished, for people."""
    return ", ".join(f"{rank.number} (pid {rank.pid})" for rank in ranks if not rank.through)


def combine_user_verdicts(by_user: dict[int, RankVerdict]) -> RankVerdict:
    """Combine several users' results: good only if all are, as the owner is unknown; the detail lists each one."""
    if len(by_user) == 1:
        return next(iter(by_user.values()))
    states = {verdict.state for verdict in by_user.values()}
    told = [f"user {uid}: {verdict.state.value}: {verdict.detail}" for uid, verdict in sorted(by_user.items())]
    more = [f"and {format_count(len(told) - USERS_TOLD, 'user')} more"] if len(told) > USERS_TOLD else []
    state = states.pop() if len(states) == 1 else OrderState.FAILED
    chars = 940 // min(len(told), USERS_TOLD)
    return RankVerdict(state, "; ".join([*(each[:chars] for each in told[:USERS_TOLD]), *more]))


def collect_all_figures(by_user: dict[int, list[OrderedRank]], now: float) -> Data:
    """Return the combined figures of all ranks: the agreed step, the latest of each time, the checkpoint.

    With several users only the times, once all have reported them, as each might invent a step and a path; these are
    under `user.UID.`.
    """
    each = {uid: collect_user_figures([rank.answer for rank in ranks if rank.answer]) for uid, ranks in by_user.items()}
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


def collect_user_figures(answers: Sequence[Acknowledgement]) -> Data:
    """Return the combined figures of one user's ranks."""
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
