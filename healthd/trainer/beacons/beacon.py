# Descriptors and open flags are the subject here; pathlib has no equivalent.
# ruff: noqa: PTH104, PTH108, PTH118
"""The rank's side of a beacon page: publishes steps, polls the mailbox.

Nothing here may stop a training run. `open_beacon` returns a working page, or one that does nothing, with one warning.
After that no call raises for reasons outside the caller's own code.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import socket
import threading
import weakref

from healthd.trainer.beacons import beacon_page
from healthd.trainer.beacons.beacon_directory import SUFFIX
from healthd.trainer.beacons.beacon_page import (
    Acknowledgement,
    BeaconError,
    FieldError,
    Identity,
    MailboxOrder,
    Phase,
    SampledDigests,
    require_short,
)
from healthd.trainer.beacons.mailbox import Mailbox
from healthd.trainer.beacons.page_reader import (
    directory_problem,
    process_alive,
    process_start,
    read_all_pages,
    read_page,
    writable_by_others,
)
from healthd.trainer.beacons.rank_placement import RankGpu, RankGroups, RankPlacement, page_name
from healthd.trainer.beacons.step_ring import EndedStep, EntryMeasurements
from healthd.trainer.process_exit import log_without_blocking
from vocabulary.clock import Clock, SystemClock

try:
    from healthd.trainer.beacons._step_writer import StepWriter
except ImportError:  # built without a compiler
    from healthd.trainer.beacons.step_writer import StepWriter

__all__ = [
    "Acknowledgement",
    "Beacon",
    "BeaconError",
    "EndedStep",
    "Identity",
    "MailboxOrder",
    "NullBeacon",
    "Phase",
    "RankGpu",
    "RankGroups",
    "RankPlacement",
    "open_beacon",
    "page_name",
    "read_all_pages",
    "read_page",
    "withdraw_page",
]

DEFAULT_DIRECTORY = "/dev/shm/gpu-healthd"  # noqa: S108 - tmpfs is the point; directory_problem() checks who owns it
DETAIL_CHARACTERS_MAX = 1000

_held: weakref.WeakValueDictionary[str, Beacon] = weakref.WeakValueDictionary()  # this process's pages, by path


class Beacon:
    """One rank's page. All methods are cheap and none uses the network; the methods of a step make no system call."""

    def __init__(self, path: str, mapped: mmap.mmap, descriptor: int, identity: Identity, clock: Clock | None) -> None:
        self.path = path
        self._descriptor = descriptor
        self._identity = identity
        self._pid = os.getpid()
        self.ended = False
        self._mapped = mapped
        self._view = memoryview(mapped)
        self.writer = StepWriter(mapped, clock)
        self.begin_step, self.end_step = self.writer.begin_step, self.writer.end_step  # bound once, as `poll`
        self.section, self.phase = self.writer.section, self.writer.phase
        self.end_measured_step, self.complete = self.writer.end_measured_step, self.writer.complete
        self._acknowledgements = self._digests = 0
        self._mailboxes: list[Mailbox] = []
        self.poll = self.mailbox().poll  # bound once: saves a method call per step
        self._acknowledging = threading.Lock()  # the guard's watcher acknowledges too
        self.phase(Phase.STARTING)

    @classmethod
    def create(cls, directory: str, place: RankPlacement, clock: Clock | None = None) -> Beacon:
        """Create this process's page, replacing a stale one of the same name.

        Raises:
            BeaconError: the directory is missing, unsafe, read-only or full, or a living process holds this page
            (including this process, if it has neither ended nor closed its own).
        """
        path = os.path.join(directory, page_name(place.job, place.attempt, place.rank))
        problem = directory_problem(directory)
        if problem:
            raise BeaconError(path, "directory", problem)
        try:
            path = _free_name(path)
            _refuse_living_owner(path)
            identity = _make_identity(place, (clock or SystemClock()).wall())
            require_short({name: text for name, text in identity._asdict().items() if isinstance(text, str)})
            mapped, descriptor = _create_page(path, identity)
        except (OSError, FieldError) as error:
            raise BeaconError(path, "page", f"cannot be made: {error}") from error
        _held[path] = beacon = cls(path, mapped, descriptor, identity, clock)
        return beacon

    def mailbox(self) -> Mailbox:
        """Return another reader of the mailbox; it sees every order, whatever `poll` has returned."""
        block = self._view[beacon_page.MAILBOX_AT : beacon_page.MAILBOX_AT + beacon_page.MAILBOX_BYTES]
        mailbox = Mailbox(self.path, block, self._untrusted)
        self._mailboxes.append(mailbox)
        return mailbox

    def identify(self, gpu: RankGpu) -> None:
        """Publish which GPU this rank uses, once known."""
        identity = self._identity._replace(gpu_uuid=gpu.uuid, gpu_pci=gpu.pci, gpu_index=gpu.number)
        if identity != self._identity:
            self._identity = identity
            frame = beacon_page.pack_frame("identity", 2, identity._asdict(), beacon_page.IDENTITY_BYTES)
            self._view[beacon_page.IDENTITY_AT : beacon_page.IDENTITY_AT + len(frame)] = frame

    def publish_digests(self, digests: SampledDigests) -> None:
        """Publish what the samples of fixed products have shown so far."""
        self._digests += 1
        frame = beacon_page.pack_frame("digests", self._digests, digests._asdict(), beacon_page.DIGESTS_BYTES)
        self._view[beacon_page.DIGESTS_AT : beacon_page.DIGESTS_AT + len(frame)] = frame

    def acknowledge(self, answer: Acknowledgement) -> None:
        """Publish this rank's progress with an order."""
        with self._acknowledging:
            self._acknowledgements += 1
            document = answer._replace(detail=answer.detail[:DETAIL_CHARACTERS_MAX])._asdict()
            room = beacon_page.ACKNOWLEDGEMENT_BYTES
            try:
                frame = beacon_page.pack_frame("acknowledgement", self._acknowledgements, document, room)
            except FieldError as error:
                log_without_blocking(
                    logging.WARNING, "beacon %s: %s; not answered, training continues", self.path, error
                )
                return
            self._view[beacon_page.ACKNOWLEDGEMENT_AT : beacon_page.ACKNOWLEDGEMENT_AT + len(frame)] = frame

    def end(self) -> None:
        """Release the name for another page of this process; the page stays as it is, and mapped."""
        self.ended = True

    @property
    def is_ours(self) -> bool:
        """Return whether this process made the page and has not ended it; false in a forked child."""
        return not self.ended and self._descriptor >= 0 and self._pid == os.getpid()

    def close(self) -> None:
        """Unmap the page; the file stays, so that its last steps can be read. Idempotent."""
        for mailbox in self._mailboxes:
            mailbox.close()
        self.writer.close()
        self._view.release()
        self._mapped.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _untrusted(self) -> str:
        """Return why another user may have written this mailbox; called only when it holds something."""
        status = os.fstat(self._descriptor)
        if status.st_uid != os.geteuid():
            return f"the page belongs to user {status.st_uid} now"
        return writable_by_others(status.st_mode)


class NullBeacon:
    """Replaces a page that could not be made: accepts every call and never has an order."""

    path = ""

    def __init__(self) -> None:
        self.writer = StepWriter(bytearray(beacon_page.PAGE_BYTES))  # a page that nobody reads

    def begin_step(self, step: int) -> None:
        """Nothing to publish."""

    def end_step(self) -> None:
        """Nothing to publish."""

    def section(self, section: int) -> None:
        """Nothing to publish."""

    def end_measured_step(self, measured: EntryMeasurements) -> EndedStep:  # noqa: ARG002 - as a page has it
        """Nothing to publish."""
        return (0, -1, 0.0, 0.0)

    def complete(self, ended: EndedStep, measured: EntryMeasurements) -> None:
        """Nothing to publish."""

    def identify(self, gpu: RankGpu) -> None:
        """Nothing to publish."""

    def phase(self, phase: Phase) -> None:
        """Nothing to publish."""

    def poll(self) -> MailboxOrder | None:
        """No mailbox, no order."""
        return None

    def mailbox(self) -> NullBeacon:
        """Return this empty mailbox."""
        return self

    def acknowledge(self, answer: Acknowledgement) -> None:
        """Nothing to publish."""

    def end(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""


def open_beacon(directory: str, place: RankPlacement, clock: Clock | None = None) -> Beacon | NullBeacon:
    """Return a page for this rank, or one that does nothing, after one warning with the reason."""
    try:
        return Beacon.create(directory, place, clock)
    except BeaconError as error:
        log_without_blocking(logging.WARNING, "%s; training continues without the node daemon's protection", error)
        return NullBeacon()


def withdraw_page(directory: str, place: RankPlacement) -> None:
    """Delete the page of a rank that this process held and holds no more, so that it is not mistaken for a stuck rank."""
    path = os.path.join(directory, page_name(place.job, place.attempt, place.rank))
    with contextlib.suppress(OSError, BeaconError):
        if read_page(path).identity.pid == os.getpid():
            os.unlink(path)


def _make_identity(place: RankPlacement, now: float) -> Identity:
    node = place.node or socket.gethostname()
    pid = os.getpid()
    started = process_start(pid) or 0
    return Identity(*place[:5], node, pid, started, now, *place.groups, *place.gpu)


def _refuse_living_owner(path: str) -> None:
    try:
        view = read_page(path)
    except (BeaconError, FileNotFoundError):
        return  # missing or invalid: replaced
    identity = view.identity
    if identity.pid == os.getpid():
        other = _held.get(path)
        if other is not None and other.is_ours:
            raise FieldError(
                "identity", "another guard of this process uses this page and its orders; use only the outer one"
            )
    elif process_alive(identity.pid, identity.process_start):
        todo = "give each job its own HEALTHD_JOB"
        raise FieldError("identity", f"pid {identity.pid} is alive and has this page; {todo}")


def _free_name(path: str) -> str:
    """Return the usual name, or a random one if another user holds it in the sticky directory."""
    try:
        taken = os.lstat(path).st_uid != os.geteuid()
    except OSError:
        taken = False
    return f"{path.removesuffix(SUFFIX)}.{os.urandom(4).hex()}{SUFFIX}" if taken else path


def _create_page(path: str, identity: Identity) -> tuple[mmap.mmap, int]:
    """Fill a temporary file and rename it. Its blocks are reserved, so that a full tmpfs fails here and not by SIGBUS.

    Returns:
        The page, and a descriptor of its file.
    """
    aside = f"{path}.{os.getpid()}.tmp"
    frame = beacon_page.pack_frame("identity", 1, identity._asdict(), beacon_page.IDENTITY_BYTES)
    descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, beacon_page.PAGE_BYTES)
        mapped = mmap.mmap(descriptor, beacon_page.PAGE_BYTES)
        mapped[: len(beacon_page.pack_header())] = beacon_page.pack_header()
        mapped[beacon_page.IDENTITY_AT : beacon_page.IDENTITY_AT + len(frame)] = frame
        state = beacon_page.pack_checked(
            beacon_page.STATE.pack(0, -1, identity.created_at, identity.created_at, 0, 0, 0, 0)
        )
        mapped[beacon_page.STATE_AT : beacon_page.STATE_AT + len(state)] = state
        os.rename(aside, path)
    except BaseException:
        os.unlink(aside)
        os.close(descriptor)
        raise
    return mapped, descriptor
