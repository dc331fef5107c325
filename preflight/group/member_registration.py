"""Collects the arriving nodes of a group and their reports."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import msgspec

from preflight.group.group_records import ArrivalMessage, NodeReport
from preflight.group.launchers.rank_placement import RankPlacement
from preflight.group.node_self_test import FACTS_S
from preflight.group.participation import find_duplicate_names
from preflight.group.rendezvous_store import RendezvousStore, UnreadableRecord

WORD_S = FACTS_S + 10.0  # from the end of a node's self-test to its report, while it reads the installed software


@dataclass
class MemberRegistration:
    """The registered nodes.

    `names` are the nodes by rank, each name once; the rest is by rank, or by name. `odd` says what an operator must fix on a
    node, `missing` why one is unknown, `doubles` are ranks with a duplicate name.
    """

    names: list[str] = field(default_factory=list)
    here: dict[int, ArrivalMessage] = field(default_factory=dict)
    words: dict[int, NodeReport] = field(default_factory=dict)
    odd: dict[int, str] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    doubles: dict[str, tuple[int, ...]] = field(default_factory=dict)


def gather_members(meeting: RendezvousStore, place: RankPlacement, arrive_s: float, own_s: float) -> MemberRegistration:
    """Wait `arrive_s` seconds for all nodes, and for their reports as long as their self-tests may take.

    Raises:
        RendezvousLost: the store is unreachable.
    """
    came = MemberRegistration()
    until = time.monotonic() + arrive_s
    for rank in range(place.world):
        try:
            here = meeting.take(f"here/{rank}", ArrivalMessage, max(0.01, until - time.monotonic()))
        except UnreadableRecord as error:
            came.odd[rank] = str(error)
            continue
        if here is None:
            came.missing[rank] = "never came"
        else:
            came.here[rank] = here
    until = time.monotonic() + own_s + WORD_S
    for rank in came.here:
        try:
            word = meeting.take(f"word/{rank}", NodeReport, max(0.01, until - time.monotonic()))
        except UnreadableRecord as error:
            came.odd[rank] = str(error)
            continue
        if word is None:
            came.missing[rank] = f"joined, but did not report its own test within {own_s + WORD_S:g} s"
        else:
            came.words[rank] = word
    _assign_names(came, place)
    return came


def _assign_names(came: MemberRegistration, place: RankPlacement) -> None:
    said = {rank: here.node for rank, here in came.here.items()}
    came.doubles = {
        name: tuple(rank for rank in said if said[rank] == name) for name in find_duplicate_names(tuple(said.values()))
    }
    for rank in range(place.world):
        name = said.get(rank, place.name_of(rank))
        if name in came.doubles or (rank not in said and name in said.values()):
            name = f"{name}#{rank}"
        came.names.append(name)
        if rank in came.words:
            came.words[rank] = msgspec.structs.replace(came.words[rank], node=name)
