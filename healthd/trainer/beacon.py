# Descriptors and open flags are the subject here; pathlib has no words for them.
# ruff: noqa: PTH104, PTH108, PTH118
"""The rank's side of a beacon page: publish a step in about a microsecond, look into the mailbox in a tenth of one.

Nothing here may stop a training run. `open_beacon` answers a page that works or one that does nothing, with one
warning; after that no call raises for reasons outside the caller's own code.
"""

from __future__ import annotations

import logging
import mmap
import os
import re
import socket
import threading
import time
from typing import NamedTuple
from zlib import crc32

from healthd.trainer import page
from healthd.trainer.page import Acknowledgement, BeaconError, FieldError, Identity, MailboxOrder, Phase
from healthd.trainer.pages import (
    directory_problem,
    post_order,
    process_alive,
    process_start,
    read,
    read_all,
    remove_old,
)
from vocabulary.clock import Clock, SystemClock

__all__ = [
    "Acknowledgement",
    "Beacon",
    "BeaconError",
    "Identity",
    "MailboxOrder",
    "NullBeacon",
    "Phase",
    "Place",
    "open_beacon",
    "page_name",
    "post_order",
    "read",
    "read_all",
    "remove_old",
]

DEFAULT_DIRECTORY = "/dev/shm/gpu-healthd"  # noqa: S108 - tmpfs is the point; directory_problem() checks who owns it
KEEP_SECONDS = 24 * 3600.0
DETAIL_CHARACTERS_MAX = 1000

_log = logging.getLogger("healthd.trainer")
_pack_state = page.STATE.pack
_pack_step = page.RING_ENTRY.pack
_pack_crc = page.CRC.pack


class Place(NamedTuple):
    """A rank's place in its job, as its environment tells it."""

    job: str
    attempt: int
    rank: int
    world: int
    local_rank: int = 0
    node: str = ""


def page_name(job: str, attempt: int, rank: int) -> str:
    """File name of a page. Unusual characters of a job's name are replaced: the identity inside is what counts."""
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', job)[:100]}.{attempt}.{rank}.beacon"


class Mailbox:
    """Where the node's daemon leaves orders. Each reader has its own, and sees each order once."""

    def __init__(self, path: str, block: memoryview) -> None:
        self._path = path
        self._block = block
        self._sequence = block[:8].cast("Q")
        self._read_sequence = 0
        self._warned = False

    def poll(self) -> MailboxOrder | None:
        """A new order, once; None while there is none. A torn one comes with a later call."""
        if self._sequence[0] == self._read_sequence:
            return None
        return self._take()

    def _take(self) -> MailboxOrder | None:
        try:
            sequence, document = page.unpack_frame("mailbox", bytes(self._block))
            order = page.order_from(document) if document is not None else None
        except FieldError as error:
            if not self._warned:
                self._warned = True
                _log.warning("beacon %s: %s; not acted upon, training goes on", self._path, error)
            return None
        self._read_sequence = sequence
        return order

    def close(self) -> None:
        """Let go of the page."""
        self._sequence.release()
        self._block.release()


class Beacon:
    """One rank's page. All methods are cheap and none touches the network; only `create` makes system calls."""

    def __init__(self, path: str, mapped: mmap.mmap, clock: Clock | None) -> None:
        self.path = path
        self._mapped = mapped
        self._view = memoryview(mapped)
        self._state = self._view[page.STATE_AT : page.STATE_AT + page.STATE.size + page.CRC.size]
        self._ring = [
            self._view[at : at + page.RING_ENTRY_BYTES]
            for at in range(page.RING_AT, page.PAGE_BYTES, page.RING_ENTRY_BYTES)
        ]
        self._wall = clock.wall if clock else time.time  # a call less than SystemClock, three times a step
        self._monotonic = clock.monotonic if clock else time.monotonic
        self._sequence = self._completed = self._acknowledgements = 0
        self._step, self._phase = -1, Phase.STARTING
        self._since = self._began = 0.0
        self._mailboxes: list[Mailbox] = []
        self.poll = self.mailbox().poll  # bound once: a method call less in every step
        self._acknowledging = threading.Lock()  # the guard's watcher acknowledges too
        self.phase(Phase.STARTING)

    @classmethod
    def create(cls, directory: str, place: Place, clock: Clock | None = None) -> Beacon:
        """Make the page of this process; a stale one of the same name is replaced.

        Raises:
            BeaconError: the directory is missing, unsafe, read-only or full, or a living process has this page.
        """
        path = os.path.join(directory, page_name(place.job, place.attempt, place.rank))
        problem = directory_problem(directory)
        if problem:
            raise BeaconError(path, "directory", problem)
        try:
            _refuse_living_owner(path)
            now = (clock or SystemClock()).wall()
            remove_old(directory, now, KEEP_SECONDS)
            return cls(path, _publish(path, _identity(place, now)), clock)
        except (OSError, FieldError) as error:
            raise BeaconError(path, "page", f"cannot be made: {error}") from error

    def begin_step(self, step: int) -> None:
        """The step `step` begins now."""
        self._step = step
        self._phase = Phase.STEP
        self._since = now = self._wall()
        self._began = self._monotonic()
        self._sequence = sequence = self._sequence + 1
        body = _pack_state(sequence, step, now, now, self._completed, 1, 0, sequence)
        self._state[:] = body + _pack_crc(crc32(body))

    def end_step(self) -> None:
        """The step that began last is complete: it goes into the ring."""
        seconds = self._monotonic() - self._began
        completed = self._completed
        body = _pack_step(completed, self._step, self._since, seconds)
        self._ring[completed % page.RING_ENTRIES][:] = body + _pack_crc(crc32(body))
        self._completed = completed = completed + 1
        self._phase = Phase.BETWEEN
        self._since = now = self._since + seconds
        self._sequence = sequence = self._sequence + 1
        body = _pack_state(sequence, self._step, now, now, completed, 2, 0, sequence)
        self._state[:] = body + _pack_crc(crc32(body))

    def phase(self, phase: Phase) -> None:
        """The rank turns to something other than a step."""
        now = self._wall()
        if phase is not self._phase or self._since == 0.0:
            self._phase, self._since = phase, now
        self._sequence = sequence = self._sequence + 1
        body = _pack_state(sequence, self._step, self._since, now, self._completed, int(phase), 0, sequence)
        self._state[:] = body + _pack_crc(crc32(body))

    def mailbox(self) -> Mailbox:
        """Another pair of eyes on the mailbox: it sees every order, whatever `poll` has taken."""
        mailbox = Mailbox(self.path, self._view[page.MAILBOX_AT : page.MAILBOX_AT + page.MAILBOX_BYTES])
        self._mailboxes.append(mailbox)
        return mailbox

    def acknowledge(self, answer: Acknowledgement) -> None:
        """Tell the node's daemon how far this rank got with an order."""
        with self._acknowledging:
            self._acknowledgements += 1
            document = answer._replace(detail=answer.detail[:DETAIL_CHARACTERS_MAX])._asdict()
            room = page.ACKNOWLEDGEMENT_BYTES
            frame = page.pack_frame("acknowledgement", self._acknowledgements, document, room)
            self._view[page.ACKNOWLEDGEMENT_AT : page.ACKNOWLEDGEMENT_AT + len(frame)] = frame

    def close(self) -> None:
        """Let go of the page; the file stays, so that its last steps can be read. Harmless twice."""
        for mailbox in self._mailboxes:
            mailbox.close()
        for view in (self._state, *self._ring, self._view):
            view.release()
        self._mapped.close()


class NullBeacon:
    """Stands where no page could be made: takes everything, holds no order."""

    path = ""

    def begin_step(self, step: int) -> None:
        """Nothing to publish."""

    def end_step(self) -> None:
        """Nothing to publish."""

    def phase(self, phase: Phase) -> None:
        """Nothing to publish."""

    def poll(self) -> MailboxOrder | None:
        """No mailbox, no order."""
        return None

    def mailbox(self) -> NullBeacon:
        """As empty as this one."""
        return self

    def acknowledge(self, answer: Acknowledgement) -> None:
        """Nobody listens."""

    def close(self) -> None:
        """Nothing is held."""


def open_beacon(directory: str, place: Place, clock: Clock | None = None) -> Beacon | NullBeacon:
    """A page for this rank, or one that does nothing and a single warning that says why."""
    try:
        return Beacon.create(directory, place, clock)
    except BeaconError as error:
        _log.warning("%s; training goes on without the node daemon's protection", error)
        return NullBeacon()


def _identity(place: Place, now: float) -> Identity:
    node = place.node or socket.gethostname()
    pid = os.getpid()
    started = process_start(pid) or 0
    return Identity(place.job, place.attempt, place.rank, place.world, place.local_rank, node, pid, started, now)


def _refuse_living_owner(path: str) -> None:
    try:
        view = read(path)
    except (BeaconError, FileNotFoundError):
        return  # nothing there, or nothing that can be believed: it is replaced
    identity = view.identity
    if identity.pid != os.getpid() and process_alive(identity.pid, identity.process_start):
        todo = "give each job its own HEALTHD_JOB"
        raise FieldError("identity", f"pid {identity.pid} is alive and has this page; {todo}")


def _publish(path: str, identity: Identity) -> mmap.mmap:
    """Fill a page aside, then rename it into place. Its blocks are reserved: a full tmpfs says so here, not by SIGBUS."""
    aside = f"{path}.{os.getpid()}.tmp"
    frame = page.pack_frame("identity", 1, identity._asdict(), page.IDENTITY_BYTES)
    descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, page.PAGE_BYTES)
        mapped = mmap.mmap(descriptor, page.PAGE_BYTES)
        mapped[: len(page.pack_header())] = page.pack_header()
        mapped[page.IDENTITY_AT : page.IDENTITY_AT + len(frame)] = frame
        state = page.pack_checked(page.STATE.pack(0, -1, identity.created_at, identity.created_at, 0, 0, 0, 0))
        mapped[page.STATE_AT : page.STATE_AT + len(state)] = state
        os.rename(aside, path)
    except BaseException:
        os.unlink(aside)
        raise
    finally:
        os.close(descriptor)
    return mapped
