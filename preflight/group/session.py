"""One process of a group from its first look around to its exit code. The only file that sees everything."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch

from preflight.group.coordinator import Coordinator, Limits
from preflight.group.faults import Fault
from preflight.group.launchers.place import Place
from preflight.group.member import Member
from preflight.group.own import facts, own_test
from preflight.group.records import End, GroupDocument, Word
from preflight.group.store import Meeting, MeetingLost, NotOfThisGroup
from preflight.group.transfer import Rail
from vocabulary import decoders
from vocabulary.clock import Clock

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
ADAPTERS = Path("/sys/class/infiniband")

Note = Callable[[str], None]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for on the command line; all nodes of a group are asked the same. `own_tells`: the own test tells healthd itself."""

    limits: Limits
    backend: str = "auto"
    interfaces: tuple[str, ...] = ()
    own_command: tuple[str, ...] = ()
    own_tells: bool = False
    key: bytes = b""
    injected: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()


def take_part(place: Place, wish: Wish, clock: Clock, note: Note) -> tuple[End, GroupDocument | None]:
    """Be one node of the group, and its coordinator too as rank 0, which alone has the document.

    Raises:
        MeetingLost: the coordinator never was there, or went away.
        NotOfThisGroup: another group meets there, or another process has this rank.
    """
    decoders.build()
    limits = wish.limits
    hosted = Meeting(place, limits.arrive_s, host=True, key=wish.key) if place.rank == 0 else None
    chosen = rails(wish.backend, wish.interfaces)

    def look() -> Word:
        own = own_test(wish.own_command, limits.own_s) if wish.own_command else None
        return Word(
            rank=place.rank,
            node=place.node,
            machine=_machine(),
            leaf=place.leaf,
            own=own and msgspec.structs.replace(own, told=wish.own_tells),
            facts=facts(),
            rails=tuple(rail.name for rail in chosen if rail.number is not None),
            injected=wish.injected,
            backend="nccl" if chosen[0].device != "cpu" else "gloo",
        )

    member = Member(place, Meeting(place, limits.arrive_s, key=wish.key), chosen, wish.faults, note)
    if hosted is None:
        return member.take_part(look, limits.first_call_s), None
    thread = threading.Thread(target=_beside, args=(member, look, limits, note), name="member", daemon=True)
    thread.start()
    return Coordinator(place, hosted, limits, (wish.injected, wish.faults), clock, note).run()


def rails(backend: str, interfaces: Sequence[str]) -> tuple[Rail, ...]:
    """The ways out of this node that are tested one by one.

    On GPUs, with several adapters, each GPU is a rail: NCCL takes the adapter nearest to it. Over TCP each named interface is one.
    """
    if backend == "nccl" or (backend == "auto" and torch.cuda.is_available()):
        adapters = len(list(ADAPTERS.iterdir())) if ADAPTERS.is_dir() else 0
        if adapters < 2:
            return (Rail(device="cuda:0", name="cuda:0"),)
        return tuple(Rail(number=n, device=f"cuda:{n}", name=f"cuda:{n}") for n in range(torch.cuda.device_count()))
    if len(interfaces) < 2:
        return (Rail(interface="".join(interfaces)),)
    return tuple(Rail(number=number, interface=name, name=name) for number, name in enumerate(interfaces))


def _beside(member: Member, look: Callable[[], Word], limits: Limits, note: Note) -> None:
    """Rank 0's own part; what goes wrong in it, the coordinator sees as it would of any node."""
    try:
        member.take_part(look, limits.first_call_s)
    except (MeetingLost, NotOfThisGroup) as error:
        note(str(error))


def _machine() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()
