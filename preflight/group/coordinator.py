"""Coordinates the group on rank 0: registers nodes, pairs them, and derives the verdict."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from preflight.fault_localisation.localisation_records import Round
from preflight.fault_localisation.pair_rounds import plan_pair_rounds
from preflight.group.culprit_messages import build_accusations
from preflight.group.gpu_direct import GpuDirect, GpuDirectUse
from preflight.group.group_records import (
    GROUP_VERSION,
    UNIT,
    CoordinatorMessage,
    EndMessage,
    GroupDocument,
    NodeRecord,
    PairRecord,
    RoundStep,
    Standing,
    StepAnswer,
)
from preflight.group.group_verdict import LEAVES_NODES_MIN, GroupEvidence, GroupJudgement, judge_group, plan_next_round
from preflight.group.injected_faults import GroupFault, find_unknown_nodes
from preflight.group.launchers.rank_placement import RankPlacement
from preflight.group.member_registration import WORD_S, MemberRegistration, gather_members
from preflight.group.pair_records import combine_pair_answers
from preflight.group.participation import decide_participation, share_one_machine
from preflight.group.rendezvous_store import RendezvousStore, UnreadableRecord
from preflight.group.transfer_deadline import ABORT_S
from vocabulary.clock import Clock
from vocabulary.text.plurals import format_count

CONFIRMATIONS_MAX = 6
ANSWER_S = 3.0  # from the end of a pair's time to the arrival of its answer
NEXT_S = 60.0  # from the last answer to the next call, at most
BYE_S = 10.0

Note = Callable[[str], None]


class GroupLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits (seconds), number of rounds, and the expected rate of a healthy pair (GB/s)."""

    arrive_s: float = 120.0
    own_s: float = 120.0
    pair_s: float = 30.0
    rounds: int = 4
    expected: float | None = None

    @property
    def first_call_s(self) -> float:
        """The longest time from a node's arrival to the coordinator's first call."""
        return self.arrive_s + self.own_s + WORD_S + NEXT_S


class Coordinator:
    """Runs one group and builds its document."""

    def __init__(
        self,
        place: RankPlacement,
        meeting: RendezvousStore,
        limits: GroupLimits,
        injected: tuple[Sequence[str], Sequence[GroupFault]],
        clock: Clock,
        note: Note,
    ) -> None:
        self._place = place
        self._meeting = meeting
        self._limits = limits
        self._injected, self._faults = injected
        self._clock = clock
        self._note = note
        self._came = MemberRegistration()
        self._standing: dict[str, Standing] = {}
        self._silent_since: dict[str, str] = {}
        self._odd: dict[str, str] = {}
        self._direct: dict[str, GpuDirectUse] = {}
        self._records: list[PairRecord] = []
        self._calls = 0
        self._compared = False

    def run(self) -> tuple[EndMessage, GroupDocument]:
        """Test the group, and send the result to every node.

        Raises:
            RendezvousLost: the store is unreachable.
        """
        started_at, began = self._clock.wall(), self._clock.monotonic()
        self._gather()
        tested = [node for node, standing in self._standing.items() if standing is Standing.TESTED]
        by_name = {word.node: word for word in self._came.words.values()}
        self._compared = not share_one_machine(by_name) and (len(tested) > 2 or self._limits.expected is not None)
        if not self._strangers():
            leaf_of = {node: by_name[node].leaf for node in tested if by_name[node].leaf}
            seed = int(started_at) & 0xFFFF
            for pairs in plan_pair_rounds(
                tested, leaf_of if len(tested) >= LEAVES_NODES_MIN else {}, self._limits.rounds, seed
            ):
                self._round(pairs)
            for _ in range(CONFIRMATIONS_MAX):
                if not (pairs := plan_next_round(self._scene())) or not self._round(pairs):
                    break
        document = self._document(judge_group(self._scene()), started_at, self._clock.monotonic() - began)
        return self._end(document), document

    def _gather(self) -> None:
        self._came = gather_members(self._meeting, self._place, self._limits.arrive_s, self._limits.own_s)
        for rank, name in enumerate(self._came.names):
            self._standing[name] = (
                Standing.WAITS if rank in self._came.odd else decide_participation(self._came.words.get(rank))
            )
        self._odd = {self._came.names[rank]: text for rank, text in self._came.odd.items()}
        self._silent_since = {self._came.names[rank]: text for rank, text in self._came.missing.items()}
        self._note(f"{len(self._came.words)} of {self._place.world} nodes have joined")

    def _strangers(self) -> list[str]:
        return find_unknown_nodes(self._faults, self._came.names)

    def _round(self, planned: Round) -> bool:
        """One round of the pairs that still respond; False if there is none."""
        pairs = [pair for pair in planned if all(self._standing[node] is Standing.TESTED for node in pair)]
        if not pairs:
            return False
        rank_of = {name: rank for rank, name in enumerate(self._came.names)}
        number, wait_s = self._calls, self._limits.pair_s * self._rails() + ABORT_S + ANSWER_S
        self._note(f"round {number + 1}: {format_count(len(pairs), 'pair')}")
        step = RoundStep(
            number=number,
            pairs=tuple((rank_of[a], rank_of[b]) for a, b in pairs),
            pair_s=self._limits.pair_s,
            next_within_s=wait_s + NEXT_S,
        )
        self._call(CoordinatorMessage(step=step))
        answers = self._answers(number, [node for pair in pairs for node in pair], rank_of, wait_s)
        self._direct |= {node: answer.gpu_direct for node, answer in answers.items()}
        self._records += combine_pair_answers(number + 1, pairs, answers, compared=self._compared)
        for node in (node for pair in pairs for node in pair if node not in answers and node not in self._odd):
            self._standing[node] = Standing.SILENT
            self._silent_since[node] = f"stopped answering in round {number + 1} (waited {wait_s:g} s)"
            self._note(f"{node} stopped answering")
        return True

    def _answers(
        self, number: int, nodes: Iterable[str], rank_of: dict[str, int], wait_s: float
    ) -> dict[str, StepAnswer]:
        until = time.monotonic() + wait_s
        answers = {}
        for node in nodes:
            left_s = max(0.01, until - time.monotonic())
            try:
                if (answer := self._meeting.take(f"answer/{number}/{rank_of[node]}", StepAnswer, left_s)) is not None:
                    answers[node] = answer
            except UnreadableRecord as error:
                self._odd[node] = str(error)
                self._standing[node] = Standing.WAITS
        return answers

    def _rails(self) -> int:
        return max((len(word.rails) for word in self._came.words.values()), default=0) or 1

    def _call(self, call: CoordinatorMessage) -> None:
        self._meeting.put(f"call/{self._calls}", call)
        self._calls += 1

    def _end(self, document: GroupDocument) -> EndMessage:
        """Send the end to all, and wait for their acknowledgement: the store ends with this process."""
        end = EndMessage(
            exit_code=document.verdict.exit_code,
            heard={rank: here.nonce for rank, here in self._came.here.items() if rank in self._came.words},
            accused=build_accusations(document),
            injected=document.injected,
        )
        self._call(CoordinatorMessage(end=end))
        until = time.monotonic() + BYE_S
        for rank in self._came.words:
            if self._standing[self._came.names[rank]] in (Standing.TESTED, Standing.UNFIT, Standing.WAITS):
                with contextlib.suppress(UnreadableRecord):
                    self._meeting.take(f"bye/{rank}", StepAnswer, max(0.01, until - time.monotonic()))
        return end

    def _scene(self) -> GroupEvidence:
        return GroupEvidence(
            standing=self._standing,
            words={word.node: word for word in self._came.words.values()},
            records=self._records,
            compared=self._compared,
            expected=self._limits.expected,
            silent_since=self._silent_since,
            strangers=self._strangers(),
            odd=self._odd,
            doubles=self._came.doubles,
            gpu_direct=self._direct,
        )

    def _document(self, judged: GroupJudgement, started_at: float, seconds: float) -> GroupDocument:
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
            gpu_direct=self._direct[name].used if name in self._direct else GpuDirect.UNKNOWN,
        )
