"""Runs one process of a group from start to exit code; wires all parts together."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch

from preflight.group.coordinator import Coordinator, GroupLimits
from preflight.group.group_records import EndMessage, GroupDocument, NodeReport
from preflight.group.injected_faults import GroupFault
from preflight.group.launchers.rank_placement import RankPlacement
from preflight.group.member import GroupMember
from preflight.group.node_self_test import collect_software_facts, run_own_test
from preflight.group.pair_transfer import GroupRail
from preflight.group.rendezvous_store import GroupMismatch, RendezvousLost, RendezvousStore
from vocabulary.clock import Clock
from vocabulary.messages import message_decoders

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
ADAPTERS = Path("/sys/class/infiniband")

Note = Callable[[str], None]


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command-line options, equal on all nodes of a group. `own_tells`: the self-test reports to healthd itself."""

    limits: GroupLimits
    backend: str = "auto"
    interfaces: tuple[str, ...] = ()
    own_command: tuple[str, ...] = ()
    own_tells: bool = False
    key: bytes = b""
    injected: tuple[str, ...] = ()
    faults: tuple[GroupFault, ...] = ()


def run_group_member(
    place: RankPlacement, options: GroupOptions, clock: Clock, note: Note
) -> tuple[EndMessage, GroupDocument | None]:
    """Run one node of the group, and on rank 0 the coordinator too, which returns the document.

    Raises:
        RendezvousLost: the coordinator never appeared, or was lost.
        GroupMismatch: another group uses the address, or another process has this rank.
    """
    message_decoders.build_decoders()
    limits = options.limits
    hosted = RendezvousStore(place, limits.arrive_s, host=True, key=options.key) if place.rank == 0 else None
    chosen = list_rails(options.backend, options.interfaces)

    def look() -> NodeReport:
        own = run_own_test(options.own_command, limits.own_s) if options.own_command else None
        return NodeReport(
            rank=place.rank,
            node=place.node,
            machine=_read_machine_id(),
            leaf=place.leaf,
            own=own and msgspec.structs.replace(own, told=options.own_tells),
            facts=collect_software_facts(),
            rails=tuple(rail.name for rail in chosen if rail.number is not None),
            injected=options.injected,
            backend="nccl" if chosen[0].device != "cpu" else "gloo",
        )

    member = GroupMember(place, RendezvousStore(place, limits.arrive_s, key=options.key), chosen, options.faults, note)
    if hosted is None:
        return member.take_part(look, limits.first_call_s), None
    thread = threading.Thread(target=_run_member_thread, args=(member, look, limits, note), name="member", daemon=True)
    thread.start()
    return Coordinator(place, hosted, limits, (options.injected, options.faults), clock, note).run()


def list_rails(backend: str, interfaces: Sequence[str]) -> tuple[GroupRail, ...]:
    """The network paths of this node that are tested separately.

    On GPUs with several adapters, each GPU is a rail: NCCL uses its nearest adapter. Over TCP, each named interface is one.
    """
    if backend == "nccl" or (backend == "auto" and torch.cuda.is_available()):
        adapters = len(list(ADAPTERS.iterdir())) if ADAPTERS.is_dir() else 0
        if adapters < 2:
            return (GroupRail(device="cuda:0", name="cuda:0"),)
        return tuple(
            GroupRail(number=n, device=f"cuda:{n}", name=f"cuda:{n}") for n in range(torch.cuda.device_count())
        )
    if len(interfaces) < 2:
        return (GroupRail(interface="".join(interfaces)),)
    return tuple(GroupRail(number=number, interface=name, name=name) for number, name in enumerate(interfaces))


def _run_member_thread(member: GroupMember, look: Callable[[], NodeReport], limits: GroupLimits, note: Note) -> None:
    """Rank 0's own part; the coordinator sees its errors as those of any node."""
    try:
        member.take_part(look, limits.first_call_s)
    except (RendezvousLost, GroupMismatch) as error:
        note(str(error))


def _read_machine_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()
