"""One node of a group: says who it is, does what the coordinator calls for, and ends as it says."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Sequence

from preflight.group.faults import CORRUPT, DIE, HANG, Fault, commits, share_of
from preflight.group.launchers.place import Place
from preflight.group.patience import Patience
from preflight.group.records import Answer, Call, End, Here, Measured, Step, Word
from preflight.group.store import CALL_S, Meeting, MeetingLost, NotOfThisGroup
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

    def take_part(self, look: Callable[[], Word], first_within_s: float) -> End:
        """Until the coordinator says that it is over. `look` is this node's own test; that it came it says before.

        Raises:
            MeetingLost: the coordinator went away, or kept silent for too long.
            NotOfThisGroup: another group meets here, or another process has this rank.
        """
        here = self._arrive()
        self._meeting.put(f"word/{self._place.rank}", look())
        number, within_s = 0, first_within_s
        while True:
            call = self._meeting.take(f"call/{number}", Call, within_s)
            if call is None:
                raise MeetingLost(f"the coordinator said nothing for {within_s:g} s")
            if call.end is not None and call.end.heard.get(here.rank) != here.nonce:
                raise MeetingLost(
                    "the group ended without this node: it was not heard in time, or that end is of another run"
                )
            if call.end is not None:
                self._meeting.put(f"bye/{self._place.rank}", Answer(measured=()))
                return call.end
            number += 1
            if call.step is not None:
                self._do(call.step)
                within_s = call.step.next_within_s

    def _arrive(self) -> Here:
        here = Here(rank=self._place.rank, node=self._place.node, nonce=secrets.token_hex(16))
        other = self._meeting.claim(f"here/{here.rank}", here)
        self._meeting.check(CALL_S)
        if other is not None:
            raise NotOfThisGroup(
                f"rank {here.rank} is taken by {other.node}; give each process of a group its own RANK"
            )
        return here

    def _do(self, step: Step) -> None:
        pair = next((pair for pair in step.pairs if self._place.rank in pair), None)
        if pair is None:
            return
        if commits(self._faults, self._place.node, HANG):
            threading.Event().wait()
        if commits(self._faults, self._place.node, DIE):
            os._exit(DEAD)
        peer = pair[1 - pair.index(self._place.rank)]
        came = self._meeting.take(f"here/{peer}", Here, step.pair_s)
        name = came.node if came is not None else self._place.name_of(peer)
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
        return lambda: self._meeting.beside(step.pair_s).of_pair(name)


def _seed(number: int, pair: tuple[int, int], rail: int) -> int:
    """The same at both ends, and another for each pair, rail and round."""
    return (((number * 8191 + pair[0]) * 131071 + pair[1]) * 61 + rail) & 0x3FFFFFFF
