"""One node of a group: announces itself, follows the coordinator's steps, and exits with its verdict."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Sequence

from preflight.group.gpu_direct import parse_gpu_direct
from preflight.group.group_records import (
    ArrivalMessage,
    CoordinatorMessage,
    EndMessage,
    NodeReport,
    RailMeasurement,
    RoundStep,
    StepAnswer,
)
from preflight.group.injected_faults import CORRUPT, DIE, HANG, GroupFault, commits_fault, compute_rate_share
from preflight.group.launchers.rank_placement import RankPlacement
from preflight.group.nccl_log import NcclLog
from preflight.group.pair_transfer import ExchangeRequest, GroupRail, exchange_payloads
from preflight.group.rendezvous_store import CALL_S, GroupMismatch, RendezvousLost, RendezvousStore
from preflight.group.transfer_deadline import DeadlineRunner

DEAD = 70  # exit code of a node with an injected crash
Note = Callable[[str], None]


class GroupMember:
    """A participant. `names` are the nodes by rank, as far as the coordinator has sent them."""

    def __init__(
        self,
        place: RankPlacement,
        meeting: RendezvousStore,
        rails: Sequence[GroupRail],
        faults: Sequence[GroupFault],
        note: Note,
    ) -> None:
        self._place = place
        self._meeting = meeting
        self._rails = rails
        self._faults = faults
        self._note = note
        self._patience = DeadlineRunner()
        self._log = NcclLog()

    def take_part(self, look: Callable[[], NodeReport], first_within_s: float) -> EndMessage:
        """Take part until the coordinator ends the group. `look` is this node's self-test; the arrival is announced before it.

        Raises:
            RendezvousLost: the coordinator was lost, or silent for too long.
            GroupMismatch: another group uses the address, or another process has this rank.
        """
        here = self._arrive()
        self._meeting.put(f"word/{self._place.rank}", look())
        self._log.open()  # not before the self-test, whose processes inherit the environment
        number, within_s = 0, first_within_s
        while True:
            call = self._meeting.take(f"call/{number}", CoordinatorMessage, within_s)
            if call is None:
                raise RendezvousLost(f"the coordinator was silent for {within_s:g} s")
            if call.end is not None and call.end.heard.get(here.rank) != here.nonce:
                raise RendezvousLost(
                    "the group ended without this node: this node was too late, or that end belongs to another run"
                )
            if call.end is not None:
                self._meeting.put(f"bye/{self._place.rank}", StepAnswer(measured=()))
                return call.end
            number += 1
            if call.step is not None:
                self._do(call.step)
                within_s = call.step.next_within_s

    def _arrive(self) -> ArrivalMessage:
        here = ArrivalMessage(rank=self._place.rank, node=self._place.node, nonce=secrets.token_hex(16))
        other = self._meeting.claim(f"here/{here.rank}", here)
        self._meeting.check(CALL_S)
        if other is not None:
            raise GroupMismatch(f"rank {here.rank} is taken by {other.node}; give each process of a group its own RANK")
        return here

    def _do(self, step: RoundStep) -> None:
        pair = next((pair for pair in step.pairs if self._place.rank in pair), None)
        if pair is None:
            return
        if commits_fault(self._faults, self._place.node, HANG):
            threading.Event().wait()
        if commits_fault(self._faults, self._place.node, DIE):
            os._exit(DEAD)
        peer = pair[1 - pair.index(self._place.rank)]
        came = self._meeting.take(f"here/{peer}", ArrivalMessage, step.pair_s)
        name = came.node if came is not None else self._place.name_of(peer)
        self._note(f"round {step.number + 1}: with {name}")
        measured = tuple(self._on(rail, step, pair, name) for rail in self._rails)
        for warning in self._log.take_warnings():
            self._note(warning)
        answer = StepAnswer(measured=measured, gpu_direct=parse_gpu_direct(self._log.read()))
        self._meeting.put(f"answer/{step.number}/{self._place.rank}", answer)

    def _on(self, rail: GroupRail, step: RoundStep, pair: tuple[int, int], peer: str) -> RailMeasurement:
        node = self._place.node
        what = ExchangeRequest(
            seed=_derive_seed(step.number, pair, rail.number or 0),
            side=pair.index(self._place.rank),
            seconds=step.pair_s,
            factor=compute_rate_share(self._faults, node, peer),
            corrupt=commits_fault(self._faults, node, CORRUPT),
        )
        store = self._meeting_of_pair(step, pair, rail)
        return self._patience.run(rail.number, step.pair_s, lambda held: exchange_payloads(store(), rail, what, held))

    def _meeting_of_pair(self, step: RoundStep, pair: tuple[int, int], rail: GroupRail) -> Callable[[], object]:
        name = f"pair/{step.number}/{pair[0]}-{pair[1]}/{rail.number}"
        return lambda: self._meeting.beside(step.pair_s).of_pair(name)


def _derive_seed(number: int, pair: tuple[int, int], rail: int) -> int:
    """Equal at both ends, and different for each pair, rail and round."""
    return (((number * 8191 + pair[0]) * 131071 + pair[1]) * 61 + rail) & 0x3FFFFFFF
