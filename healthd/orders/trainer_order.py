"""Trainer orders: writes the order into the mailboxes of the job's local ranks, then waits until they leave."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from healthd.orders.order_task import Data, make_order_update
from healthd.orders.rank_answers import (
    OrderedRank,
    RankVerdict,
    collect_all_figures,
    combine_user_verdicts,
    describe_remaining_ranks,
    judge_user_ranks,
    make_ordered_rank,
    make_unreadable_rank,
    refresh_rank,
)
from healthd.trainer.beacons.beacon_directory import BeaconDirectory, PageFile
from healthd.trainer.beacons.beacon_page import BeaconError, MailboxOrder
from healthd.trainer.beacons.job_owners import JobClaim, find_job_claimants, read_job_claim
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.beacons.page_reader import SHORTAGES, BeaconView, RetryBudget
from healthd.trainer.beacons.rank_placement import page_name
from vocabulary.order import Order, OrderState, OrderUpdate
from vocabulary.text.plurals import format_count
from vocabulary.text.surrogate_escapes import escape_surrogates

DETAIL_CHARS_MAX = 1000
LOOKS_MAX = 16  # passes over the directory; a user with more files than these read gets only the newest ranks ordered
RANKS_PER_STEP, RANKS_PER_USER = 512, 512
UNREADABLE_PER_USER = 16
USERS_MAX = 64  # remembered across a restart
_NO_PAGE = ("file", "size", "magic")  # problems of a file that never was a page


class _JobPage(NamedTuple):
    """A page of the job whose rank is alive or has received the order."""

    rank: OrderedRank
    claim: JobClaim
    attempt: int


class TrainerTask:
    """Keeps no state of its own: the pages show which rank has which order, so a restarted daemon continues.

    Several users may have pages of the job. If the scheduler says whose job it is, the others' pages are ignored.
    Otherwise all are ordered: an order harms only a user who claimed the job, and the true owner's ranks must receive
    it.
    """

    def __init__(self, order: Order, answer: OrderUpdate, beacon_dir: str) -> None:
        self._order = order
        self._data: Data = dict(answer.data)
        self._directory = BeaconDirectory(beacon_dir)
        self._seen: set[PageFile] = set()
        self._looks = 0
        self._found: dict[str, _JobPage] = {}
        self._broken: dict[str, OrderedRank] = {}
        self._found_of, self._broken_of = Counter[int](), Counter[int]()
        self._ranks: dict[str, OrderedRank] = {}
        attempt = r"\d+" if order.attempt is None else str(order.attempt)
        job = page_name(order.job, 0, 0).removesuffix(".0.0.beacon")
        self._names = re.compile(rf"{re.escape(job)}\.{attempt}\.\d+(\.[0-9a-f]{{8}})?\.beacon")

    def step(self, now: float) -> OrderUpdate | None:
        """Deliver to the mailboxes, wait for the agreement, then for the end."""
        if self._ranks:
            return self._watch(now)
        return self._post(now) if self._find() or now >= self._order.expires_at else None

    def close(self) -> None:
        """Do nothing: the ranks continue by themselves."""
        self._directory.close()

    def _find(self) -> bool:
        """Find the job's pages; return whether the search is complete.

        Raises:
            OSError: the directory cannot be read now.
        """
        look, patience, short = self._directory.look(self._seen), RetryBudget(), False
        self._seen.update(look.due)
        for file in look.due:
            try:
                view = patience.read(file)
            except FileNotFoundError:
                continue
            except BeaconError as error:
                may_be = error.field not in _NO_PAGE and self._names.fullmatch(Path(file.path).name)
                if may_be and self._room(self._broken_of, file.uid, UNREADABLE_PER_USER):
                    self._broken[file.path] = make_unreadable_rank(file.path, file.uid, str(error))
                continue
            except OSError as error:
                if error.errno in SHORTAGES:  # temporary; read the page again
                    self._seen.discard(file)
                    short = True
                continue
            self._broken.pop(file.path, None)
            if view.identity.job == self._order.job and self._order.attempt in (None, view.identity.attempt):
                self._keep(view)
        self._looks += look.whole
        return not short and (look.over or self._looks >= LOOKS_MAX)

    def _keep(self, view: BeaconView) -> None:
        rank = make_ordered_rank(view, self._order.mailbox_id)
        if not (rank.alive or rank.told):
            return
        if view.path in self._found or self._room(self._found_of, view.uid, RANKS_PER_USER):
            self._found[view.path] = _JobPage(rank, read_job_claim(view), view.identity.attempt)
        else:  # an invalid page: limit what is remembered, and do not count it as good
            problem = f"more than {RANKS_PER_USER} pages of the job are user {view.uid}'s: {escape_surrogates(view.path)} is not ordered"
            self._broken.setdefault(f"user {view.uid}", make_unreadable_rank(view.path, view.uid, problem))

    @staticmethod
    def _room(kept: Counter[int], uid: int, most: int) -> bool:
        """Return whether one more page of that user may be remembered, and count it."""
        kept[uid] += kept[uid] < most + 1
        return kept[uid] <= most

    def _forget(self) -> None:
        """Look at the directory from the beginning."""
        self._seen.clear()
        self._looks = 0
        for kept in (self._found, self._broken, self._ranks, self._found_of, self._broken_of):
            kept.clear()

    def _post(self, now: float) -> OrderUpdate | None:
        """Order each user's ranks of one attempt: the order's, or else the user's newest live attempt."""
        theirs = self._users()
        for rank in self._targets([each for each in self._found.values() if theirs(each.rank.uid)]):
            self._ranks[rank.path] = self._told(rank)
        broken = {path: rank for path, rank in self._broken.items() if theirs(rank.uid)}
        problems = [rank.problem for rank in (*self._ranks.values(), *broken.values()) if rank.problem]
        told = any(rank.told for rank in self._ranks.values())
        if not told and any(rank.vanished for rank in self._ranks.values()) and now < self._order.expires_at:
            self._forget()  # its process may have another rank, and another page, by now
            return None
        before = int(self._data.get("ranks", 0))
        self._data["ranks"] = len(self._ranks) or before
        if not self._ranks:
            problems += [f"{format_count(before, 'page')} vanished"] if before else []
            state = OrderState.FAILED if problems else OrderState.SUCCEEDED
            return self._says(state, now, "; ".join(problems) or f"no rank of job {self._order.job} runs on this node")
        if not told:
            return self._says(OrderState.FAILED, now, "; ".join(problems))
        self._ranks |= broken
        self._data.setdefault("mailbox_at", now)
        users = sorted({rank.uid for rank in self._ranks.values()})
        if len(users) <= USERS_MAX:
            self._data["users"] = " ".join(map(str, users))
        return self._says(OrderState.RUNNING, now, "; ".join(["in the mailboxes", *problems]))

    def _users(self) -> Callable[[int], bool]:
        """Return the users whose pages count: all but those excluded by the scheduler or by an order in progress."""
        claimants = find_job_claimants(each.claim for each in self._found.values()).get(self._order.job)
        strangers = claimants.strangers if claimants is not None else ()
        before = str(self._data.get("users", "")).split()  # from an earlier process: later users do not take part
        return lambda uid: uid not in strangers and (not before or str(uid) in before)

    @staticmethod
    def _targets(found: list[_JobPage]) -> list[OrderedRank]:
        by_user: dict[int, list[_JobPage]] = {}
        for each in found:
            by_user.setdefault(each.rank.uid, []).append(each)
        targets: list[OrderedRank] = []
        for _, own in sorted(by_user.items()):
            newest = max(each.attempt for each in [each for each in own if each.rank.told] or own)
            targets += [each.rank for each in own if each.attempt == newest]
        return targets

    def _told(self, rank: OrderedRank) -> OrderedRank:
        """Write the order into a rank's mailbox unless it is already there."""
        try:
            post_order(rank.path, _mailbox_order(self._order))
        except (BeaconError, OSError) as error:
            return rank._replace(problem=str(error), vanished=isinstance(error, FileNotFoundError))
        return rank._replace(told=True, problem="")

    def _watch(self, now: float) -> OrderUpdate | None:
        before = dict(self._data)
        waited_for = [rank for rank in self._ranks.values() if not rank.through][:RANKS_PER_STEP]
        for rank in waited_for:
            again = refresh_rank(rank, self._order.mailbox_id)
            del self._ranks[rank.path]  # move to the end of the queue
            self._ranks[rank.path] = self._told(again) if again.alive and again.problem else again
        self._follow_moved_ranks()
        by_user: dict[int, list[OrderedRank]] = {}
        for rank in sorted(self._ranks.values(), key=lambda rank: (rank.uid, rank.number)):
            by_user.setdefault(rank.uid, []).append(rank)
        self._data |= collect_all_figures(by_user, now)
        to_go = sum(not rank.through for rank in self._ranks.values())
        if not to_go or now >= self._order.expires_at:
            end = combine_user_verdicts({uid: self._verdict(ranks) for uid, ranks in by_user.items()})
            return self._says(end.state, now, end.detail)
        return (
            self._says(OrderState.RUNNING, now, f"{format_count(to_go, 'rank')} to go")
            if self._data != before
            else None
        )

    def _follow_moved_ranks(self) -> None:
        """Order the newer page of a process that holds another rank by now.

        Under a launcher that replaces ranks, such a process withdraws the page of the rank before, with its answer. With
        the same rank it makes its page again, and `_watch` orders that.
        """
        moved = {
            (rank.uid, rank.pid, rank.started): path
            for path, rank in self._ranks.items()
            if rank.vanished and not rank.through
        }
        if not moved:
            return
        with suppress(OSError):  # the next step reads the directory again
            self._find()
        for page in self._found.values():
            before = moved.get((page.rank.uid, page.rank.pid, page.rank.started))
            if before in self._ranks and page.rank.path not in self._ranks:
                del self._ranks[before]
                self._ranks[page.rank.path] = self._told(page.rank)

    def _verdict(self, ranks: list[OrderedRank]) -> RankVerdict:
        there = describe_remaining_ranks(ranks)
        if there:
            return RankVerdict(OrderState.FAILED, f"still running when the order expired: rank {there}")
        return judge_user_ranks(self._order.kind, ranks)

    def _says(self, state: OrderState, now: float, detail: str) -> OrderUpdate:
        return make_order_update(self._order, state, now, detail[:DETAIL_CHARS_MAX], dict(self._data))


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
