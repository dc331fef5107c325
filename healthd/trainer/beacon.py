# Descriptors and open flags are the subject here; pathlib has no words for them.
# ruff: noqa: PTH104, PTH108, PTH118
"""The rank's side of a beacon page: publish a step in about a microsecond, look into the mailbox in a tenth of one.

Nothing here may stop a training run. `open_beacon` answers a page that works or one that does nothing, with one
warning; after that no call raises for reasons outside the caller's own code.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import socket
import threading
import time
import weakref
from typing import NamedTuple
from zlib import crc32

from healthd.trainer import page, ring
from healthd.trainer.directory import SUFFIX
from healthd.trainer.leaving import say
from healthd.trainer.mailbox import Mailbox
from healthd.trainer.page import Acknowledgement, BeaconError, FieldError, Identity, MailboxOrder, Phase, require_short
from healthd.trainer.pages import (
    directory_problem,
    post_order,
    process_alive,
    process_start,
    read,
    read_all,
    writable_by_others,
)
from healthd.trainer.place import Gpu, Groups, Place, page_name
from healthd.trainer.ring import Measured
from vocabulary.clock import Clock, SystemClock

__all__ = [
    "Acknowledgement",
    "Beacon",
    "BeaconError",
    "Ended",
    "Gpu",
    "Groups",
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
    "withdraw",
]

DEFAULT_DIRECTORY = "/dev/shm/gpu-healthd"  # noqa: S108 - tmpfs is the point; directory_problem() checks who owns it
DETAIL_CHARACTERS_MAX = 1000

_pack_state = page.STATE.pack
_pack_step = ring.HEAD.pack
_unmeasured, _entries = ring.UNMEASURED, ring.ENTRIES
_pack_crc = page.CRC.pack


_held: weakref.WeakValueDictionary[str, Beacon] = weakref.WeakValueDictionary()  # this process's own pages, by path


class Ended(NamedTuple):
    """A finished step and its place in the ring; times as in `ring.StepRecord`."""

    ordinal: int
    step: int
    started_at: float
    seconds: float


class Beacon:
    """One rank's page. All methods are cheap and none touches the network; none that a step needs makes a system call."""

    def __init__(self, path: str, mapped: mmap.mmap, descriptor: int, identity: Identity, clock: Clock | None) -> None:
        self.path = path
        self._descriptor = descriptor
        self._identity = identity
        self._pid = os.getpid()
        self.ended = False
        self._mapped = mapped
        self._view = memoryview(mapped)
        self._state = self._view[page.STATE_AT : page.STATE_AT + page.STATE.size + page.CRC.size]
        self._ring = [
            self._view[at : at + ring.ENTRY_BYTES] for at in range(page.RING_AT, page.PAGE_BYTES, ring.ENTRY_BYTES)
        ]
        self._wall = clock.wall if clock else time.time  # a call less than SystemClock, three times a step
        self._monotonic = clock.monotonic if clock else time.monotonic
        self._sequence = self._completed = self._acknowledgements = 0
        self._step, self._phase, self._section = -1, Phase.STARTING, 0
        self._since = self._began = 0.0
        self._mailboxes: list[Mailbox] = []
        self.poll = self.mailbox().poll  # bound once: a method call less in every step
        self._acknowledging = threading.Lock()  # the guard's watcher acknowledges too
        self.phase(Phase.STARTING)

    @classmethod
    def create(cls, directory: str, place: Place, clock: Clock | None = None) -> Beacon:
        """Make the page of this process; a stale one of the same name is replaced.

        Raises:
            BeaconError: the directory is missing, unsafe, read-only or full, or a living process has this page; so has this one,
                if it made one of the name and has neither ended nor closed it.
        """
        path = os.path.join(directory, page_name(place.job, place.attempt, place.rank))
        problem = directory_problem(directory)
        if problem:
            raise BeaconError(path, "directory", problem)
        try:
            path = _free_name(path)
            _refuse_living_owner(path)
            identity = _identity(place, (clock or SystemClock()).wall())
            require_short({name: text for name, text in identity._asdict().items() if isinstance(text, str)})
            mapped, descriptor = _publish(path, identity)
        except (OSError, FieldError) as error:
            raise BeaconError(path, "page", f"cannot be made: {error}") from error
        _held[path] = beacon = cls(path, mapped, descriptor, identity, clock)
        return beacon

    def begin_step(self, step: int) -> None:
        """The step `step` begins now."""
        self._step = step
        self._phase, self._section = Phase.STEP, 0
        self._since = now = self._wall()
        self._began = self._monotonic()
        self._sequence = sequence = self._sequence + 1
        body = _pack_state(sequence, step, now, now, self._completed, 1, 0, sequence)
        self._state[:] = body + _pack_crc(crc32(body))

    def section(self, section: int) -> None:
        """The step turns to this section; 0 (`Section.NONE`) when it leaves one."""
        self._section = section
        now = self._wall()
        self._sequence = sequence = self._sequence + 1
        body = _pack_state(sequence, self._step, self._since, now, self._completed, self._phase, section, sequence)
        self._state[:] = body + _pack_crc(crc32(body))

    def end_step(self) -> None:
        """The step that began last is complete, and nothing but its time was told: it goes into the ring."""
        seconds = self._monotonic() - self._began
        completed = self._completed
        body = _pack_step(completed, self._step, self._since, seconds, 0) + _unmeasured
        self._ring[completed % _entries][:] = body + _pack_crc(crc32(body))
        self._between(completed + 1, seconds)

    def end_measured_step(self, measured: Measured) -> Ended:
        """The same for a step that told more.

        Returns:
            What `complete` needs when the rest of its numbers is there.
        """
        seconds = self._monotonic() - self._began
        ended = Ended(self._completed, self._step, self._since, seconds)
        self.complete(ended, measured)
        self._between(self._completed + 1, seconds)
        return ended

    def complete(self, ended: Ended, measured: Measured) -> None:
        """Write the entry of a finished step again, unless a later step has its place already."""
        if ended.ordinal >= self._completed - ring.ENTRIES + 1:
            self._ring[ended.ordinal % ring.ENTRIES][:] = ring.pack_entry(*ended, measured)

    def _between(self, completed: int, seconds: float) -> None:
        self._completed = completed
        self._phase, self._section = Phase.BETWEEN, 0
        self._since = now = self._since + seconds
        self._sequence = sequence = self._sequence + 1
        body = _pack_state(sequence, self._step, now, now, completed, 2, 0, sequence)
        self._state[:] = body + _pack_crc(crc32(body))

    def phase(self, phase: Phase) -> None:
        """The rank turns to something other than a step."""
        now = self._wall()
        if phase is not self._phase or self._since == 0.0:
            self._phase, self._since, self._section = phase, now, 0
        self._sequence = sequence = self._sequence + 1
        body = _pack_state(sequence, self._step, self._since, now, self._completed, int(phase), self._section, sequence)
        self._state[:] = body + _pack_crc(crc32(body))

    def mailbox(self) -> Mailbox:
        """Another pair of eyes on the mailbox: it sees every order, whatever `poll` has taken."""
        block = self._view[page.MAILBOX_AT : page.MAILBOX_AT + page.MAILBOX_BYTES]
        mailbox = Mailbox(self.path, block, self._untrusted)
        self._mailboxes.append(mailbox)
        return mailbox

    def identify(self, gpu: Gpu) -> None:
        """Say which GPU this rank uses, once that is known."""
        identity = self._identity._replace(gpu_uuid=gpu.uuid, gpu_pci=gpu.pci, gpu_index=gpu.number)
        if identity != self._identity:
            self._identity = identity
            frame = page.pack_frame("identity", 2, identity._asdict(), page.IDENTITY_BYTES)
            self._view[page.IDENTITY_AT : page.IDENTITY_AT + len(frame)] = frame

    def acknowledge(self, answer: Acknowledgement) -> None:
        """Tell the node's daemon how far this rank got with an order."""
        with self._acknowledging:
            self._acknowledgements += 1
            document = answer._replace(detail=answer.detail[:DETAIL_CHARACTERS_MAX])._asdict()
            room = page.ACKNOWLEDGEMENT_BYTES
            try:
                frame = page.pack_frame("acknowledgement", self._acknowledgements, document, room)
            except FieldError as error:
                say(logging.WARNING, "beacon %s: %s; not answered, training goes on", self.path, error)
                return
            self._view[page.ACKNOWLEDGEMENT_AT : page.ACKNOWLEDGEMENT_AT + len(frame)] = frame

    def end(self) -> None:
        """Its guard is through: another of this process may have the name. The page stays as it is, and mapped."""
        self.ended = True

    @property
    def is_ours(self) -> bool:
        """Whether this process made it and has not ended it: not so in a forked child, and its parent's orders come to the parent."""
        return not self.ended and self._descriptor >= 0 and self._pid == os.getpid()

    def close(self) -> None:
        """Let go of the page; the file stays, so that its last steps can be read. Harmless twice."""
        for mailbox in self._mailboxes:
            mailbox.close()
        for view in (self._state, *self._ring, self._view):
            view.release()
        self._mapped.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _untrusted(self) -> str:
        """Why what lies in this mailbox may be somebody else's; asked only when something does."""
        status = os.fstat(self._descriptor)
        if status.st_uid != os.geteuid():
            return f"the page belongs to user {status.st_uid} now"
        return writable_by_others(status.st_mode)


class NullBeacon:
    """Stands where no page could be made: takes everything, holds no order."""

    path = ""

    def begin_step(self, step: int) -> None:
        """Nothing to publish."""

    def end_step(self) -> None:
        """Nothing to publish."""

    def section(self, section: int) -> None:
        """Nothing to publish."""

    def end_measured_step(self, measured: Measured) -> Ended:  # noqa: ARG002 - as a page has it
        """Nothing to publish."""
        return Ended(0, -1, 0.0, 0.0)

    def complete(self, ended: Ended, measured: Measured) -> None:
        """Nothing to publish."""

    def identify(self, gpu: Gpu) -> None:
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

    def end(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""


def open_beacon(directory: str, place: Place, clock: Clock | None = None) -> Beacon | NullBeacon:
    """A page for this rank, or one that does nothing and a single warning that says why."""
    try:
        return Beacon.create(directory, place, clock)
    except BeaconError as error:
        say(logging.WARNING, "%s; training goes on without the node daemon's protection", error)
        return NullBeacon()


def withdraw(directory: str, place: Place) -> None:
    """Delete the page of a rank that this process held and holds no more, so that nobody takes it for a rank that stands still."""
    path = os.path.join(directory, page_name(place.job, place.attempt, place.rank))
    with contextlib.suppress(OSError, BeaconError):
        if read(path).identity.pid == os.getpid():
            os.unlink(path)


def _identity(place: Place, now: float) -> Identity:
    node = place.node or socket.gethostname()
    pid = os.getpid()
    started = process_start(pid) or 0
    return Identity(*place[:5], node, pid, started, now, *place.groups, *place.gpu)


def _refuse_living_owner(path: str) -> None:
    try:
        view = read(path)
    except (BeaconError, FileNotFoundError):
        return  # nothing there, or nothing that can be believed: it is replaced
    identity = view.identity
    if identity.pid == os.getpid():
        other = _held.get(path)
        if other is not None and other.is_ours:
            raise FieldError(
                "identity", "another guard of this process has this page, and the orders in it; the outer one is enough"
            )
    elif process_alive(identity.pid, identity.process_start):
        todo = "give each job its own HEALTHD_JOB"
        raise FieldError("identity", f"pid {identity.pid} is alive and has this page; {todo}")


def _free_name(path: str) -> str:
    """The usual name, or one that nobody can foresee where another user has taken it: in a sticky directory it stays his."""
    try:
        taken = os.lstat(path).st_uid != os.geteuid()
    except OSError:
        taken = False
    return f"{path.removesuffix(SUFFIX)}.{os.urandom(4).hex()}{SUFFIX}" if taken else path


def _publish(path: str, identity: Identity) -> tuple[mmap.mmap, int]:
    """Fill a page aside, then rename it into place. Its blocks are reserved: a full tmpfs says so here, not by SIGBUS.

    Returns:
        The page, and a descriptor of its file.
    """
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
        os.close(descriptor)
        raise
    return mapped, descriptor
