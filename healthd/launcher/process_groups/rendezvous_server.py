"""Where the processes of a job meet its launcher: it tells them who holds which rank, and sees at once who is gone.

One thread serves all connections. A member is gone when its connection ends, when it is frozen, when it does not enter a
new generation in time, or when an order condemns its node. `GroupMembership` decides what follows; this is its shell.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any

from healthd.launcher.process_groups.elastic_membership import ElasticMembership, SizeLimits
from healthd.launcher.process_groups.generation_transition import GenerationTransition, make_replacement_event
from healthd.launcher.process_groups.group_membership import Generation, GroupMembership, Member, NoSpareError
from healthd.launcher.process_groups.job_growth import JobGrowth
from healthd.launcher.process_groups.member_connection import SEND_SECONDS, MemberConnection
from healthd.launcher.process_groups.member_heartbeats import MemberHeartbeats
from healthd.launcher.scheduler_backend import Event
from healthd.trainer.exit_codes import ExitCode
from healthd.trainer.rendezvous_client import ADDRESS, TOKEN, encode_message, truncate_reason

ENTER_SECONDS = 45.0  # for every member to enter a generation after the first; who does not is replaced, too
LOOPBACK = "127.0.0.1"
# Messages that name a generation.
_OF_A_GENERATION = frozenset({"entering", "entered", "loaded", "advanced", "fixed", "paused", "done"})
_TICK_SECONDS = 0.5
_STRANGERS_MOST = 32  # connections that have not shown the token; of more the oldest is ended


class RendezvousServer:
    """The server of one attempt. Started at once; `close` ends it."""

    def __init__(
        self,
        members: Sequence[Member],
        world: int,
        host: str = LOOPBACK,
        sizes: SizeLimits | None = None,
        frozen_seconds: float = 0.0,
    ) -> None:
        """Raises OSError.

        Args:
            members: those that hold the ranks first, then the spares.
            world: how many ranks there are.
            host: the address at which the members reach this machine.
            sizes: within which the number of ranks may change; None: it may not.
            frozen_seconds: after which a member that does not answer is replaced, if the job stands still; 0: never.
        """
        self._nodes = {each.number: each.node for each in members}
        self._membership = (
            GroupMembership(members, world) if sizes is None else ElasticMembership(members, world, sizes)
        )
        self._token = secrets.token_urlsafe(24)
        self._guests: dict[int, MemberConnection] = {}
        self._generation: Generation | None = None
        self._awaited: set[int] = set()  # members that have not entered the newest generation
        self._entering: set[int] = set()  # those that are about to
        self._transition, self._growth = GenerationTransition(), JobGrowth()
        self._heartbeats = MemberHeartbeats(frozen_seconds, len(members))
        self._advanced = False  # a step was finished in the newest generation
        self._done: set[int] = set()
        self._released = False  # all were done
        self._stopped = ""
        self._farewell = b""  # what all were told at the end, for those that come later
        self._condemned: list[int] = []  # members whose process the launcher is to kill
        self._events: list[Event] = []
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server((LOOPBACK if host == LOOPBACK else "", 0))
        self._host = host
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._waker = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="launcher-rendezvous", daemon=True)
        self._thread.start()

    @property
    def environ(self) -> dict[str, str]:
        """What every member's environment must hold, beside its number."""
        return {ADDRESS: f"{self._host}:{self._listener.getsockname()[1]}", TOKEN: self._token}

    @property
    def stopped(self) -> bool:
        """Whether no further generation will come: how the ranks end counts again."""
        return self._released or bool(self._stopped)

    @property
    def condemned_nodes(self) -> frozenset[str]:
        """Nodes that an order condemned."""
        with self._lock:
            return self._membership.condemned

    def rank_of(self, member: int) -> int | None:
        """The rank that a member holds now, or held last if no other member has it."""
        with self._lock:
            return self._membership.rank_of(member)

    @property
    def rank_nodes(self) -> list[str]:
        """The node of each rank."""
        with self._lock:
            return [each.node for each in self._membership.holders]

    def admit(self, members: Sequence[Member]) -> None:
        """Processes that are about to be started: they may come, and wait for a rank."""
        with self._lock:
            self._nodes |= {each.number: each.node for each in members}
            self._membership.admit(members)
            self._tell_spares()

    def note_end(self, member: int) -> None:
        """The process of a member has ended. What it has sent is still heard.

        Its connection may stay open: a process that it forked has a copy. One that never came has none.
        """
        with self._lock:
            own = [guest for guest in self._guests.values() if guest.member == member]
            for guest in own:
                guest.end(socket.SHUT_RD)
            if not own:
                self._leave(member, "its process has ended")

    def take_condemned(self) -> list[int]:
        """Members whose processes are to be killed; each once."""
        with self._lock:
            found, self._condemned = self._condemned, []
        return found

    def take_events(self) -> list[Event]:
        """What happened since the last call."""
        with self._lock:
            found, self._events = self._events, []
        return found

    def stop(self, why: str) -> None:
        """Replace no member from now on: the members act as if there were no rendezvous."""
        with self._lock:
            self._stop(why)

    def close(self) -> None:
        """End all connections."""
        self._closing = True
        with contextlib.suppress(OSError):  # it has failed, and is closed
            self._waker.send(b"x")
        self._thread.join(2 * SEND_SECONDS)

    def _serve(self) -> None:
        try:
            while not self._closing:
                self._serve_once()
        except Exception as error:  # noqa: BLE001 - whatever it is: the ranks' ends must count again
            with self._lock:
                self._stop(f"the rendezvous has failed: {type(error).__name__}: {error}")
        for guest in self._guests.values():
            guest.connection.close()
        for each in (self._listener, self._wake, self._waker):
            each.close()
        self._selector.close()

    def _serve_once(self) -> None:
        for key, _ in self._selector.select(_TICK_SECONDS):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is not self._wake:
                self._hear(key.data)
        with self._lock:
            self._grow()
            self._replace_frozen(time.monotonic())
            if self._number > 0 and self._awaited and time.monotonic() - self._transition.formed_at > ENTER_SECONDS:
                # a rank that is about to enter may wait for another one that is not
                for member in sorted(self._awaited - self._entering or self._awaited):
                    self._condemned.append(member)
                    self._leave(member, f"it did not enter generation {self._number} within {ENTER_SECONDS:g} s")

    def _replace_frozen(self, now: float) -> None:
        """Members that do not answer while the job stands still, if it can go on without them."""
        if self.stopped:
            return
        if self._heartbeats.is_ping_due(now):
            self._send_all(encode_message("ping"))
        for member in self._heartbeats.find_frozen(now):
            if self._membership.spares or self._membership.shrinks:
                self._condemned.append(member)
                self._leave(
                    member,
                    "it does not answer, and the job stands still: its process is frozen, or its node is cut off",
                )

    @property
    def _number(self) -> int:
        return self._generation.number if self._generation else -1

    def _accept(self) -> None:
        with contextlib.suppress(OSError), self._lock:
            connection, address = self._listener.accept()
            guest = MemberConnection(connection, address[0])
            self._guests[connection.fileno()] = guest
            self._selector.register(connection, selectors.EVENT_READ, guest)
            strangers = [each for each in self._guests.values() if each.member is None]
            for each in strangers[:-_STRANGERS_MOST]:
                self._drop(each)

    def _hear(self, guest: MemberConnection) -> None:
        messages, alive = guest.receive()
        with self._lock:
            try:
                for message in messages:
                    self._take(guest, message)
            except (KeyError, TypeError, ValueError, OverflowError):
                alive = False
            if not alive:
                self._drop(guest)

    def _drop(self, guest: MemberConnection) -> None:
        if self._guests.pop(guest.connection.fileno(), None) is None:
            return
        self._selector.unregister(guest.connection)
        guest.connection.close()
        if guest.member is not None:
            self._leave(guest.member, "its process has died")

    def _take(self, guest: MemberConnection, message: dict[str, Any]) -> None:
        kind = message["type"]
        if guest.member is None:
            self._welcome(guest, message)
        elif self._membership.is_gone(guest.member):
            return  # it was replaced, and whatever befalls it now is its own affair
        elif kind in _OF_A_GENERATION:
            if message["generation"] == self._number:
                self._take_progress(guest.member, message)
        elif kind == "pong":
            self._heartbeats.note_answer(guest.member, int(message["steps"]), time.monotonic())
        elif kind == "evict":
            self._evict([str(node) for node in message["nodes"]], truncate_reason(str(message["why"])))
        elif kind == "leaving":
            why = str(message.get("why", ""))
            self._take_leave(guest.member, int(message["code"]), why, replace=bool(message.get("replace")))

    def _take_progress(self, member: int, message: dict[str, Any]) -> None:
        """How far a member is in the newest generation."""
        kind = message["type"]
        if kind == "entering":
            self._entering.add(member)
        elif kind == "entered":
            self._awaited.discard(member)
            self._transition.meet()
        elif kind == "loaded":
            self._transition.load(member, int(message["finished"]), int(message["begin"]))
        elif kind == "advanced":
            self._advance(member, message)
        elif kind == "fixed" and self._membership.rank_of(member) == 0:
            self._membership.note_fixed(truncate_reason(str(message["why"])))
            self._tell_spares()
            self._grow()
        elif kind == "paused":
            self._transition.pause()
            self._growth.note_paused(member, time.monotonic())
            self._grow()
        elif kind == "done":
            self._done.add(member)
            if self._generation and all(each.number in self._done for each in self._generation.members):
                self._released = True
                self._say_farewell(encode_message("release"))

    def _welcome(self, guest: MemberConnection, message: dict[str, Any]) -> None:
        """Raises ValueError: it is no member of this job, or one that has come before."""
        known = message["type"] == "arrive" and hmac.compare_digest(
            str(message["token"]).encode(), self._token.encode()
        )
        if not known or message["member"] not in self._nodes:
            raise ValueError("not a member of this job")
        member, port = int(message["member"]), int(message["port"])
        if self._membership.is_gone(member) or any(each.member == member for each in self._guests.values()):
            raise ValueError("this member has already joined")
        guest.member, guest.port = member, port
        if message.get("answers_pings"):  # it may freeze before the first ping
            self._heartbeats.note_answer(member, 0, time.monotonic())
        if self._farewell:
            guest.send(self._farewell)
        self._membership.arrive(member)
        self._tell_spares()
        self._form()
        self._grow()

    def _advance(self, member: int, message: dict[str, Any]) -> None:
        if self._advanced or self._membership.rank_of(member) != 0:
            return
        self._advanced = True
        self._growth.note_advanced()
        self._heartbeats.note_trained([each.number for each in self._membership.holders], time.monotonic())
        if self._number:
            self._events.append(self._transition.event(int(message["step"]), str(message["source"])))
        self._tell_spares()
        self._grow()

    def _take_leave(self, member: int, code: int, why: str, *, replace: bool) -> None:
        """A member is about to end with `code`. One that failed before any step is not replaced: its successor would fail, too."""
        if code == ExitCode.CONDEMNED and replace:  # it ends by itself, and may take the time that it needs
            for each in self._membership.condemn([self._nodes[member]]):
                self._leave(each.number, f"{each.node} is condemned, and its ranks leave on an order")
        elif code in set(ExitCode):
            self._stop(f"member {member} leaves with {code}")
        elif not self._advanced:
            self._stop(f"member {member} failed before a step of generation {self._number} was done: {why}")

    def _evict(self, nodes: Collection[str], why: str) -> None:
        for member in self._membership.condemn(nodes):
            self._condemned.append(member.number)
            self._leave(member.number, f"{member.node} is condemned: {why}")

    def _leave(self, member: int, why: str) -> None:
        if self.stopped or not self._membership.leave(member):
            return
        self._awaited.discard(member)
        self._heartbeats.forget(member)
        rank = self._membership.rank_of(member)
        if rank is not None:
            self._transition.begin()
            facts: dict[str, object] = {"rank": rank, "node": self._nodes[member], "generation": self._number}
            self._events.append(Event("rank_lost", f"rank {rank} on {self._nodes[member]} is lost: {why}", facts))
        self._tell_spares()
        self._form()

    def _grow(self) -> None:
        """Ask the ranks to pause, if the job can have more of them; the next generation, once all have."""
        if self.stopped or not self._generation:
            return
        now, members = time.monotonic(), [each.number for each in self._generation.members]
        if self._growth.resumes(now, members):
            self._form(resume=True)
        possible = self._advanced and self._membership.can_grow
        if request := self._growth.request(now, self._number, possible=possible):
            self._transition.begin()
            self._send_all(encode_message("pause", request=request))

    def _form(self, *, resume: bool = False) -> None:
        """The next generation, if one is needed and all have come."""
        if self.stopped:
            return
        try:
            formed = self._membership.next_generation(resume=resume)
        except NoSpareError as error:
            self._stop(str(error), broken=True)
            return
        if formed is None:
            return
        self._generation, replaced = formed
        self._advanced = False
        self._transition.form(self._generation)
        self._growth.clear()
        self._done.clear()
        self._entering.clear()
        self._awaited = {each.number for each in self._generation.members}
        reached = {guest.member: guest for guest in self._guests.values() if guest.member is not None}
        peers = [
            (each.number, each.node, reached[each.number].host, reached[each.number].port)
            for each in self._generation.members
        ]
        waiting = [each.number for each in self._membership.spares]
        self._send_all(
            encode_message("generation", number=self._number, peers=peers, waiting=waiting, **self._outlook())
        )
        self._events += [make_replacement_event(self._number, each) for each in replaced]
        if announcement := self._transition.announcement():
            self._events.append(announcement)

    def _stop(self, why: str, *, broken: bool = False) -> None:
        """Args: `broken`: the newest generation lacks a rank, so that no collective of it can complete."""
        if not self.stopped:
            self._stopped = why = truncate_reason(why)
            self._events.append(Event("swap_impossible", f"no further rank is replaced: {why}", {}))
            self._say_farewell(encode_message("stop", why=why, broken=broken))

    def _say_farewell(self, line: bytes) -> None:
        self._farewell = line
        self._send_all(line)

    def _tell_spares(self) -> None:
        self._send_all(encode_message("spares", **self._outlook()))

    def _outlook(self) -> dict[str, Any]:
        """What would follow a loss."""
        known = self._membership
        return {"spares": len(known.spares), "elastic": known.elastic, "shrinks": known.shrinks}

    def _send_all(self, line: bytes) -> None:
        for guest in list(self._guests.values()):
            if guest.member is not None:
                guest.send(line)
