"""One rank's call of `Agreement.at_boundary`, suspended at each word to the store and gone on with when there is an answer.

A call is a function of what the rank knew and of what the store answered. So a call in the middle is kept as the answers so far;
it is begun anew with them until it asks for one more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from healthd.trainer.agreement import Agreement, AgreementMissedError, _Vote
from healthd.trainer.beacons.beacon_page import MailboxOrder
from healthd.trainer.store_caller import StoreCaller, StoreGoneError

T = TypeVar("T")

READY, ASKING, ACTED, LEFT, DEAD = "ready", "asking", "acted", "left", "dead"
IN_TIME, TOO_LATE, EXPIRES = 0.0, 2.0, 1.0  # UTC seconds
LOST, GIVEN_UP = "no answer", "no answer for so long that it gives up"
_FOR_EVER = 1e9


class Word(NamedTuple):
    """One question to the store."""

    what: str  # add, compare_set
    key: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        key = self.key.partition("/")[2]
        if self.what == "add":
            return f"adds {self.values[0]} to {key}"
        expected, desired = self.values
        return f"sets {key} to {desired} if it is {expected or 'not there'}"


class Known(NamedTuple):
    """What a rank's `Agreement` remembers between two boundaries."""

    votes: tuple[tuple[str, bool, bool, bool, int], ...] = ()  # order, counted, all voted, unwanted, agreed
    finished: tuple[str, ...] = ()


class Rank(NamedTuple):
    """One rank: it has entered the collectives of all steps before `boundary`."""

    boundary: int = 1
    doing: str = READY
    known: Known = Known()
    told: tuple[str, ...] = ()  # orders, and cancellations (-order), that it found at some boundary
    mail: tuple[str, ...] = ()  # that it found at this one
    answers: tuple[tuple[str, str], ...] = ()  # of the store in the call under way
    late: bool = False  # by its clock the orders are past their expiry
    acted: int = 0  # at which step


class Ruled(NamedTuple):
    """How a call goes on: it asks, or it is over."""

    known: Known = Known()
    asks: Word | None = None
    acts: bool = False
    leaves: bool = False
    missed: str = ""


class _AsksError(BaseException):  # no Exception: the agreement takes any of those for a failing store
    def __init__(self, word: Word) -> None:
        self.word = word


class _Answers:
    """A store that repeats what was answered, and suspends the call at the first question after that."""

    def __init__(self, answers: tuple[tuple[str, str], ...], clock: list[float]) -> None:
        self._answers = iter(answers)
        self._clock = clock

    def add(self, key: str, amount: int, /) -> int:
        return int(self._answer(Word("add", key, (str(amount),))))

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        return self._answer(Word("compare_set", key, (expected, desired))).encode()

    def _answer(self, word: Word) -> str:
        how, value = next(self._answers, ("", ""))
        if not how:
            raise _AsksError(word)
        if how == GIVEN_UP:
            self._clock[0] += _FOR_EVER
        if how in (LOST, GIVEN_UP):
            raise ConnectionError(how)
        return value


class Unhurried(StoreCaller):
    """The product's patience without threads; its time passes only where the model says so."""

    def __init__(self, clock: list[float]) -> None:
        super().__init__(lambda: clock[0], lambda _seconds: None)

    def call_once(self, ask: Callable[[], T], seconds: float) -> T:
        assert seconds > 0
        return ask()


def ruled_on(agreement: type[Agreement], ranks: int, rank: Rank) -> Ruled:
    """The product's own ruling at a rank's boundary, as far as the answers go."""
    clock = [0.0]
    mine = agreement(_Answers(rank.answers, clock), ranks, "job", Unhurried(clock))
    _remember(mine, rank.known)
    orders = [_order(name) for name in rank.mail]
    try:
        ruling = mine.at_boundary(rank.boundary, TOO_LATE if rank.late else IN_TIME, *orders)
    except _AsksError as asked:
        return Ruled(asks=asked.word)
    except StoreGoneError:
        return Ruled(leaves=True)
    except AgreementMissedError as error:
        return Ruled(missed=str(error))
    return Ruled(_known(mine), acts=bool(ruling.due))


def _order(name: str) -> MailboxOrder:
    plain = name.removeprefix("-")
    return MailboxOrder(plain, "checkpoint_then_eject", "model", ("n1",), EXPIRES, cancelled=plain != name)


def _remember(agreement: Agreement, known: Known) -> None:
    for name, counted, all_voted, unwanted, agreed in known.votes:
        vote = _Vote(_order(name))
        vote.counted, vote.all_voted, vote.unwanted, vote.agreed = counted, all_voted, unwanted, agreed
        agreement._votes[name] = vote
    agreement._finished.update(dict.fromkeys(known.finished))


def _known(agreement: Agreement) -> Known:
    votes = agreement._votes.items()
    return Known(
        tuple((name, each.counted, each.all_voted, each.unwanted, each.agreed) for name, each in votes),
        tuple(sorted(agreement._finished)),
    )
