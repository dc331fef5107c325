"""One node of a group: says who it is, does what the coordinator calls for, and ends as it says."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from preflight.group.faults import CORRUPT, DIE, HANG, Fault, commits, share_of
from preflight.group.launchers.place import Place
from preflight.group.patience import Patience
from preflight.group.records import Answer, Call, End, Measured, Step, Word
from preflight.group.store import Meeting, MeetingLost
from preflight.group.transfer import Exchange, Rail, exchange

DEAD = 70  # how a node that is told to die ends
Note = Callable[[str], None]


class Member:
    """Takes part. `names` are the nodes by rank, as far as the coordinator has told them."""

    def __init__(
        self, place: Place, meeting: Meeting, rails: Sequence[Rail], faults: Sequence[Fault], note: Note
    ) -> None:
        self._place = place
        self._meeting = meeting
        self._rails = rails
        self._faults = faults
        self._note = note
        self._patience = Patience()

    def take_part(self, word: Word, first_within_s: float) -> End:
        """Until the coordinator says that it is over.

        Raises:
            MeetingLost: the coordinator went away, or kept silent for too long.
        """
        self._meeting.put(f"word/{self._place.rank}", word)
        number, within_s = 0, first_within_s
        while True:
            call = self._meeting.take(f"call/{number}", Call, within_s)
            if call is None:
                raise MeetingLost(f"the coordinator said nothing for {within_s:g} s")
            if call.end is not None:
                self._meeting.put(f"bye/{self._place.rank}", Answer(measured=()))
                return call.end
            number += 1
            if call.step is not None:
                self._do(call.step)
                within_s = call.step.next_within_s

    def _do(self, step: Step) -> None:
        pair = next((pair for pair in step.pairs if self._place.rank in pair), None)
        if pair is None:
            return
        if commits(self._faults, self._place.node, HANG):
            threading.Event().wait()
        if commits(self._faults, self._place.node, DIE):
            os._exit(DEAD)
        peer = pair[1 - pair.index(self._place.rank)]
        word = self._meeting.take(f"word/{peer}", Word, step.pair_s)
        name = word.node if word is not None else self._place.name_of(peer)
        self._note(f"round {step.number + 1}: with {name}")
        answer = Answer(measured=tuple(self._on(rail, step, pair, name) for rail in self._rails))
        self._meeting.put(f"answer/{step.number}/{self._place.rank}", answer)

    def _on(self, rail: Rail, step: Step, pair: tuple[int, int], peer: str) -> Measured:
        node = self._place.node
        what = Exchange(
            seed=_seed(step.number, pair, rail.number or 0),
            side=pair.index(self._place.rank),
            seconds=step.pair_s,
            factor=share_of(self._faults, node, peer),
            corrupt=commits(self._faults, node, CORRUPT),
        )
        store = self._meeting_of_pair(step, pair, rail)
        return self._patience.run(rail.number, step.pair_s, lambda held: exchange(store(), rail, what, held))

    def _meeting_of_pair(self, step: Step, pair: tuple[int, int], rail: Rail) -> Callable[[], object]:
        name = f"pair/{step.number}/{pair[0]}-{pair[1]}/{rail.number}"
        return lambda: Meeting(self._place, step.pair_s).of_pair(name)


def _seed(number: int, pair: tuple[int, int], rail: int) -> int:
    """The same at both ends, and another for each pair, rail and round."""
    return (((number * 8191 + pair[0]) * 131071 + pair[1]) * 61 + rail) & 0x3FFFFFFF
