"""The ranks' agreement on a step, every order of events: `healthd.trainer.agreement` itself, suspended at each word to the store.

What is the model's own: the store's ways to fail, the collectives, and what the guard does with a ruling (`Guard._rule`: a bound
rank without a word leaves).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from healthd.trainer.agreement import Agreement, LocalStore
from tests.models.exploration import Step
from tests.models.suspended_call import ACTED, ASKING, DEAD, GIVEN_UP, LEFT, LOST, READY, Rank, Ruled, Word, ruled_on

GONE = frozenset({LEFT, DEAD})

Held = tuple[tuple[str, str], ...]  # by the store: key, value


class World(NamedTuple):
    """All ranks, the store, and words on their way to it that nobody waits for any more."""

    ranks: tuple[Rank, ...]
    store: Held = ()
    late: tuple[Word, ...] = ()
    faults: int = 0  # of the store, so far
    deaths: int = 0


class Bounds(NamedTuple):
    """How much of everything there is."""

    ranks: int = 3
    boundaries: int = 4
    orders: tuple[str, ...] = ("a",)
    told_until: int = 2  # the last boundary at which an order may be found for the first time
    surely_told: bool = False  # every rank finds every order by then
    cancelled: bool = False  # a rank may find a cancellation
    expires: bool = False
    ahead: int = 0  # steps by which a host may run ahead of its device while there is no order
    faults: int = 0  # of the store
    deaths: int = 0


class Job:
    """A job of so many ranks. Its methods are the rules; each broken job changes one of them."""

    agreement: type[Agreement] = Agreement
    name = "as it is"

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._calls: dict[Rank, Ruled] = {}
        self._words: dict[tuple[Held, Word], tuple[Held, str]] = {}

    def initial(self) -> World:
        return World((Rank(),) * self.bounds.ranks)

    def canonical(self, world: World) -> World:
        return world._replace(ranks=tuple(sorted(world.ranks)), late=tuple(sorted(world.late)))

    def steps(self, world: World) -> Iterator[Step[World]]:
        for number, rank in enumerate(world.ranks):
            if rank.doing == ASKING:
                yield from self._store_hears(world, number)
            elif rank.doing == READY and rank.boundary <= self.bounds.boundaries:
                yield from self._passes(world, number)
            if rank.doing in (READY, ASKING) and world.deaths < self.bounds.deaths:
                dead = _with(world, number, rank._replace(doing=DEAD, answers=(), mail=()))
                yield Step(
                    f"rank {number} dies at boundary {rank.boundary}",
                    dead._replace(deaths=world.deaths + 1),
                    world=True,
                )
        for word in dict.fromkeys(world.late):
            rest = list(world.late)
            rest.remove(word)
            store, _ = self.tell(world.store, word)
            after = world._replace(store=store, late=tuple(rest))
            yield Step(
                f"a late word reaches the store: it {word}", after, world=True, wrong=_changed(world.store, store)
            )

    def _passes(self, world: World, number: int) -> Iterator[Step[World]]:
        """What a rank may find at its boundary. Without an order it passes; with one it waits for its device first."""
        rank = world.ranks[number]
        complete = min(each.boundary for each in world.ranks) - 1
        if complete < rank.boundary - 1 - self.bounds.ahead:
            return
        for mail in self._mail(rank):
            for late in {rank.late, self.bounds.expires}:
                if not (mail or rank.known.votes):
                    after = rank._replace(boundary=rank.boundary + 1)
                    yield Step(f"rank {number} begins step {rank.boundary}", _with(world, number, after))
                    break
                if self.waits_for_device and complete < rank.boundary - 1:
                    continue
                found = rank._replace(doing=ASKING, mail=mail, told=tuple(sorted({*rank.told, *mail})), late=late)
                yield self._goes_on(world, number, found, _finds(number, found, rank))

    waits_for_device = True

    def _mail(self, rank: Rank) -> Iterator[tuple[str, ...]]:
        new = [order for order in self.bounds.orders if order not in rank.told]
        last = rank.boundary >= self.bounds.told_until
        if not (self.bounds.surely_told and last and new):
            yield ()
        if rank.boundary <= self.bounds.told_until:
            yield from ((order,) for order in new)
        if self.bounds.cancelled:
            yield from ((f"-{order}",) for order in self.bounds.orders if f"-{order}" not in rank.told)

    def _store_hears(self, world: World, number: int) -> Iterator[Step[World]]:
        """The word a rank waits for: answered, or lost in one of the ways in which it can be."""
        rank = world.ranks[number]
        word = self.call(rank).asks
        assert word is not None
        store, answer = self.tell(world.store, word)
        heard = world._replace(store=store)
        wrong = _changed(world.store, store) or _too_many(store, len(world.ranks))
        told = f"rank {number} {word}"
        yield self._answered(heard, number, ("ok", answer), f"{told}, answered {answer}", wrong=wrong)
        if world.faults >= self.bounds.faults:
            return
        failed = world._replace(faults=world.faults + 1)
        for how in (LOST, GIVEN_UP):
            yield self._answered(failed, number, (how, ""), f"{told}, which never arrives: {how}", fault=True)
            yield self._answered(
                failed._replace(store=store),
                number,
                (how, ""),
                f"{told}, which arrives: {how}",
                fault=True,
                wrong=wrong,
            )
            later = failed._replace(late=(*failed.late, word))
            yield self._answered(later, number, (how, ""), f"{told}, which arrives later: {how}", fault=True)

    def _answered(
        self, world: World, number: int, answer: tuple[str, str], text: str, *, fault: bool = False, wrong: str = ""
    ) -> Step[World]:
        rank = world.ranks[number]
        step = self._goes_on(world, number, rank._replace(answers=(*rank.answers, answer)), text)
        return step._replace(world=fault, wrong=wrong or step.wrong)

    def _goes_on(self, world: World, number: int, rank: Rank, text: str) -> Step[World]:
        ruled = self.call(rank)
        if ruled.asks is not None:
            return Step(text, _with(world, number, rank))
        if ruled.missed:
            return Step(text, world, wrong=ruled.missed)
        after = self.after(rank, ruled)
        return Step(f"{text}; it {_does(rank, after)}", _with(world, number, after._replace(answers=(), mail=())))

    def after(self, rank: Rank, ruled: Ruled) -> Rank:
        """What the guard does with a ruling."""
        if ruled.leaves:
            return rank._replace(doing=LEFT)
        if ruled.acts:
            return rank._replace(doing=ACTED, acted=rank.boundary, boundary=rank.boundary + 1, known=ruled.known)
        return rank._replace(doing=READY, boundary=rank.boundary + 1, known=ruled.known)

    def call(self, rank: Rank) -> Ruled:
        """The product's own ruling at this boundary, as far as the answers go."""
        if rank not in self._calls:
            self._calls[rank] = ruled_on(self.agreement, self.bounds.ranks, rank)
        return self._calls[rank]

    def tell(self, store: Held, word: Word) -> tuple[Held, str]:
        """What the store holds after a word, and its answer."""
        if (store, word) not in self._words:
            self._words[store, word] = self._told(store, word)
        return self._words[store, word]

    def _told(self, store: Held, word: Word) -> tuple[Held, str]:
        local = LocalStore()
        local._held = dict(store)
        if word.what == "add":
            answer = str(local.add(word.key, int(word.values[0])))
        else:
            answer = local.compare_set(word.key, *word.values).decode()
        return tuple(sorted(local._held.items())), answer

    def wrong(self, world: World) -> str:
        acted = {rank.acted for rank in world.ranks if rank.acted}
        if len(acted) > 1:
            return f"ranks save at different steps: {sorted(acted)}"
        for step in acted:
            alone = [number for number, rank in enumerate(world.ranks) if not rank.acted and rank.boundary > step]
            if alone:
                return f"rank {alone[0]} trains step {step} without saving, at which others save"
        if self.bounds.surely_told and not self.bounds.faults + self.bounds.deaths and self.ended(world) and not acted:
            return "all ranks had the order, nothing failed, and nobody acts on it"
        return ""

    def ended(self, world: World) -> bool:
        """Every rank is through, gone, or waits for one that is gone, which is the abort's business."""
        gone = [rank.boundary for rank in world.ranks if rank.doing in GONE]
        lowest = min(gone, default=self.bounds.boundaries + 1)
        return all(
            rank.doing in GONE
            or rank.doing == ACTED
            or (rank.doing == READY and rank.boundary > min(self.bounds.boundaries, lowest + self.bounds.ahead))
            or (rank.doing == READY and rank.boundary > lowest and not list(self._passes(world, number)))
            for number, rank in enumerate(world.ranks)
        )


def _with(world: World, number: int, rank: Rank) -> World:
    return world._replace(ranks=(*world.ranks[:number], rank, *world.ranks[number + 1 :]))


def _changed(before: Held, after: Held) -> str:
    """There is one decision on an order, for ever."""
    now = dict(after)
    for key, value in before:
        if key.endswith("/step") and value not in ("", "0") and now[key] != value:
            return f"{key} was decided to be {value} and is now {now[key]}"
    return ""


def _too_many(store: Held, ranks: int) -> str:
    votes = [f"{key} is {value}" for key, value in store if key.endswith("/votes") and int(value) > ranks]
    return f"more votes than ranks: {votes[0]}" if votes else ""


def _finds(number: int, found: Rank, before: Rank) -> str:
    names = [f"the end of order {m[1:]}" if m.startswith("-") else f"order {m}" for m in found.mail]
    expired = ", by its clock too late" if found.late and not before.late else ""
    return f"rank {number} at boundary {found.boundary} finds {' and '.join(names) or 'nothing new'}{expired}"


def _does(before: Rank, after: Rank) -> str:
    if after.doing == LEFT:
        return "leaves"
    return f"saves in step {before.boundary}" if after.acted else f"begins step {before.boundary}"
