"""Jobs whose ranks break one rule of the agreement each. What the model finds wrong with them says what the rule is for."""

from __future__ import annotations

from healthd.trainer.agreement import _OPEN, WORD_SECONDS, Agreement, DroppedOrder, _Vote
from healthd.trainer.beacons.beacon_page import MailboxOrder, OrderOutcome
from tests.models.agreement import Bounds, Held, Job
from tests.models.suspended_call import READY, Known, Rank, Ruled, Word


class _DecidesAlone(Agreement):
    def _cast(self, vote: _Vote) -> None:
        super()._cast(vote)
        vote.all_voted = True


class _VotesAgain(Agreement):
    def _cast(self, vote: _Vote) -> None:
        votes = self._patience.call_with_retries(
            lambda: self._store.add(self._key(vote.order, "votes"), 1), WORD_SECONDS
        )
        vote.counted, vote.all_voted = True, votes >= self._world


class _NamesItsOwnStep(Agreement):
    def _word(self, order: MailboxOrder, wanted: int) -> int:
        return super()._word(order, wanted - 1 if wanted > 0 else wanted)


class _WithdrawsInSilence(Agreement):
    def _learn(
        self, vote: _Vote, number: int, now: float, agreed: list[tuple[MailboxOrder, int]], dropped: list[DroppedOrder]
    ) -> None:
        if now > vote.order.expires_at and not vote.agreed:
            dropped.append(self._drop(vote.order, OrderOutcome.EXPIRED))
        else:
            super()._learn(vote, number, now, agreed, dropped)


class _LooksOnlyOnce(Agreement):
    def _learn(
        self, vote: _Vote, number: int, now: float, agreed: list[tuple[MailboxOrder, int]], dropped: list[DroppedOrder]
    ) -> None:
        if vote.all_voted or number % 2 == 0:
            super()._learn(vote, number, now, agreed, dropped)


class DecidesAlone(Job):
    name = "a rank that has voted decides alone"
    agreement = _DecidesAlone


class VotesAgain(Job):
    name = "a vote without an answer is cast again"
    agreement = _VotesAgain


class NamesItsOwnStep(Job):
    name = "who knows all votes names its own step, not the next"
    agreement = _NamesItsOwnStep


class WithdrawsInSilence(Job):
    name = "a bound rank drops an expired order without writing so"
    agreement = _WithdrawsInSilence


class LooksOnlyOnce(Job):
    name = "a bound rank does not learn at each boundary what was decided"
    agreement = _LooksOnlyOnce


class TrainsOn(Job):
    name = "a bound rank that hears nothing trains on"

    def after(self, rank: Rank, ruled: Ruled) -> Rank:
        if ruled.leaves:
            return rank._replace(doing=READY, boundary=rank.boundary + 1, known=Known(finished=self.bounds.orders))
        return super().after(rank, ruled)


class RunsAhead(Job):
    name = "a host that found an order does not wait for its device"
    waits_for_device = False


class Overwrites(Job):
    name = "the store sets where it should compare and set"

    def _told(self, store: Held, word: Word) -> tuple[Held, str]:
        if word.what == "compare_set" and word.values[1] != str(_OPEN):
            return tuple(sorted((dict(store) | {word.key: word.values[1]}).items())), word.values[1]
        return super()._told(store, word)


class WaitsForTheVotes(Job):
    name = "a bound rank waits at its boundary until it is decided"

    def after(self, rank: Rank, ruled: Ruled) -> Rank:
        undecided = any(not agreed for *_, agreed in ruled.known.votes)
        after = super().after(rank, ruled)
        return after._replace(boundary=rank.boundary) if undecided and after.doing == READY else after


BROKEN: tuple[Job, ...] = (
    DecidesAlone(Bounds(ranks=2)),
    VotesAgain(Bounds(ranks=2, faults=1)),
    NamesItsOwnStep(Bounds(ranks=2)),
    WithdrawsInSilence(Bounds(ranks=2, expires=True)),
    LooksOnlyOnce(Bounds(ranks=2)),
    TrainsOn(Bounds(ranks=2, faults=1)),
    RunsAhead(Bounds(ranks=2, ahead=2)),
    Overwrites(Bounds(ranks=2, expires=True)),
    WaitsForTheVotes(Bounds(ranks=2)),
)
