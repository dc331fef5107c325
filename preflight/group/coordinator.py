"""Rank 0's second task: who comes, who is paired with whom, and what it all says."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from preflight.group.arrival import WORD_S, Arrival, gather
from preflight.group.faults import Fault, strangers
from preflight.group.launchers.place import Place
from preflight.group.pairing import combined
from preflight.group.patience import ABORT_S
from preflight.group.records import (
    GROUP_VERSION,
    UNIT,
    Answer,
    Call,
    End,
    GroupDocument,
    NodeRecord,
    PairRecord,
    Standing,
    Step,
)
from preflight.group.standing import same_machine, standing_of
from preflight.group.store import Meeting, Unreadable
from preflight.group.verdict import LEAVES_NODES_MIN, Judged, Scene, judge, next_round
from preflight.group.wording import accusations
from preflight.localise.records import Round
from preflight.localise.rounds import rounds
from vocabulary.clock import Clock
from vocabulary.counts import counted

CONFIRMATIONS_MAX = 6
ANSWER_S = 3.0  # from the end of a pair's time to the arrival of its answer
NEXT_S = 60.0  # from the last answer to the next call, at the latest
BYE_S = 10.0

Note = Callable[[str], None]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long things may take (seconds), how many rounds are planned, and what a healthy pair reaches (GB/s)."""

    arrive_s: float = 120.0
    own_s: float = 120.0
    pair_s: float = 30.0
    rounds: int = 4
    expected: float | None = None

    @property
    def first_call_s(self) -> float:
        """The longest time from a node's first word to the coordinator's first call."""
        return self.arrive_s + self.own_s + WORD_S + NEXT_S


class Coordinator:
    """Runs one group to its document."""

    def __init__(
        self,
        place: Place,
        meeting: Meeting,
        limits: Limits,
        injected: tuple[Sequence[str], Sequence[Fault]],
        clock: Clock,
        note: Note,
    ) -> None:
        self._place = place
        self._meeting = meeting
        self._limits = limits
        self._injected, self._faults = injected
        self._clock = clock
        self._note = note
        self._came = Arrival()
        self._standing: dict[str, Standing] = {}
        self._silent_since: dict[str, str] = {}
        self._odd: dict[str, str] = {}
        self._records: list[PairRecord] = []
        self._calls = 0
        self._compared = False

    def run(self) -> tuple[End, GroupDocument]:
        """Test the group, and tell every node how it ends.

        Raises:
            MeetingLost: the store is gone.
        """
        started_at, began = self._clock.wall(), self._clock.monotonic()
        self._gather()
        tested = [node for node, standing in self._standing.items() if standing is Standing.TESTED]
        by_name = {word.node: word for word in self._came.words.values()}
        self._compared = not same_machine(by_name) and (len(tested) > 2 or self._limits.expected is not None)
        if not self._strangers():
            leaf_of = {node: by_name[node].leaf for node in tested if by_name[node].leaf}
            seed = int(started_at) & 0xFFFF
            for pairs in rounds(tested, leaf_of if len(tested) >= LEAVES_NODES_MIN else {}, self._limits.rounds, seed):
                self._round(pairs)
            for _ in range(CONFIRMATIONS_MAX):
                if not (pairs := next_round(self._scene())) or not self._round(pairs):
                    break
        document = self._document(judge(self._scene()), started_at, self._clock.monotonic() - began)
        return self._end(document), document

    def _gather(self) -> None:
        self._came = gather(self._meeting, self._place, self._limits.arrive_s, self._limits.own_s)
        for rank, name in enumerate(self._came.names):
            self._standing[name] = Standing.WAITS if rank in self._came.odd else standing_of(self._came.words.get(rank))
        self._odd = {self._came.names[rank]: text for rank, text in self._came.odd.items()}
        self._silent_since = {self._came.names[rank]: text for rank, text in self._came.missing.items()}
        self._note(f"{len(self._came.words)} of {self._place.world} nodes are here")

    def _strangers(self) -> list[str]:
        return strangers(self._faults, self._came.names)

    def _round(self, planned: Round) -> bool:
        """One round of those pairs that are still answering; False if there is none left."""
        pairs = [pair for pair in planned if all(self._standing[node] is Standing.TESTED for node in pair)]
        if not pairs:
            return False
        rank_of = {name: rank for rank, name in enumerate(self._came.names)}
        number, wait_s = self._calls, self._limits.pair_s * self._rails() + ABORT_S + ANSWER_S
        self._note(f"round {number + 1}: {counted(len(pairs), 'pair')}")
        step = Step(
            number=number,
            pairs=tuple((rank_of[a], rank_of[b]) for a, b in pairs),
            pair_s=self._limits.pair_s,
            next_within_s=wait_s + NEXT_S,
        )
        self._call(Call(step=step))
        answers = self._answers(number, [node for pair in pairs for node in pair], rank_of, wait_s)
        self._records += combined(number + 1, pairs, answers, compared=self._compared)
        for node in (node for pair in pairs for node in pair if node not in answers and node not in self._odd):
            self._standing[node] = Standing.SILENT
            self._silent_since[node] = f"answered no more in round {number + 1}, within {wait_s:g} s"
            self._note(f"{node} answers no more")
        return True

    def _answers(self, number: int, nodes: Iterable[str], rank_of: dict[str, int], wait_s: float) -> dict[str, Answer]:
        until = time.monotonic() + wait_s
        answers = {}
        for node in nodes:
            left_s = max(0.01, until - time.monotonic())
            try:
                if (answer := self._meeting.take(f"answer/{number}/{rank_of[node]}", Answer, left_s)) is not None:
                    answers[node] = answer
            except Unreadable as error:
                self._odd[node] = str(error)
                self._standing[node] = Standing.WAITS
        return answers

    def _rails(self) -> int:
        return max((len(word.rails) for word in self._came.words.values()), default=0) or 1

    def _call(self, call: Call) -> None:
        self._meeting.put(f"call/{self._calls}", call)
        self._calls += 1

    def _end(self, document: GroupDocument) -> End:
        """Tell all, and stay until those who still answer have heard it: the store ends with us."""
        end = End(
            exit_code=document.verdict.exit_code,
            heard={rank: here.nonce for rank, here in self._came.here.items() if rank in self._came.words},
            accused=accusations(document),
            injected=document.injected,
        )
        self._call(Call(end=end))
        until = time.monotonic() + BYE_S
        for rank in self._came.words:
            if self._standing[self._came.names[rank]] in (Standing.TESTED, Standing.UNFIT, Standing.WAITS):
                with contextlib.suppress(Unreadable):
                    self._meeting.take(f"bye/{rank}", Answer, max(0.01, until - time.monotonic()))
        return end

    def _scene(self) -> Scene:
        return Scene(
            standing=self._standing,
            words={word.node: word for word in self._came.words.values()},
            records=self._records,
            compared=self._compared,
            expected=self._limits.expected,
            silent_since=self._silent_since,
            strangers=self._strangers(),
            odd=self._odd,
            doubles=self._came.doubles,
        )

    def _document(self, judged: Judged, started_at: float, seconds: float) -> GroupDocument:
        words = self._came.words.values()
        own = tuple(f"{word.node}: {fault}" for word in words if word.own for fault in word.own.injected)
        asked = (fault for word in words for fault in word.injected)
        backends = sorted({word.backend for word in words})
        return GroupDocument(
            version=GROUP_VERSION,
            level="group",
            verdict=judged.verdict,
            reason="; ".join(judged.reasons),
            reasons=judged.reasons,
            remarks=judged.remarks,
            injected=tuple(dict.fromkeys((*self._injected, *asked, *own))),
            coordinator=self._place.node,
            launcher=self._place.launcher,
            backend=" and ".join(backends),
            unit=UNIT,
            compared=self._compared,
            started_at=started_at,
            seconds=round(seconds, 3),
            rounds=self._calls,
            culprits=judged.culprits,
            suspects=judged.suspects,
            cleared=judged.cleared,
            unknown=judged.unknown,
            exclude=judged.exclude,
            nodes=tuple(self._node(rank) for rank in range(self._place.world)),
            pairs=tuple(self._records),
        )

    def _node(self, rank: int) -> NodeRecord:
        name, word = self._came.names[rank], self._came.words.get(rank)
        if word is None:
            return NodeRecord(rank=rank, node=name, standing=self._standing[name])
        return NodeRecord(
            rank=rank,
            node=name,
            standing=self._standing[name],
            leaf=word.leaf,
            own=word.own,
            facts=word.facts or {},
            rails=word.rails,
        )
