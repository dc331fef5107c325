# Descriptors and open flags are the subject here; pathlib has no equivalent.
# ruff: noqa: PTH116, PTH123
"""Reads the beacon directory: for the node daemon, `healthctl`, and a rank that checks before it writes.

Pages belong to users the daemon does not trust. So: no symlinks, no shared write permission, the size must be exact, a
living process must own its page, and the file is read and written by pread/pwrite, never mapped (a user who truncates a
mapped file kills its reader).
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from healthd.trainer.beacons import beacon_page
from healthd.trainer.beacons.beacon_directory import PageFile, iterate_page_files
from healthd.trainer.beacons.beacon_page import (
    Acknowledgement,
    BeaconError,
    FieldError,
    Identity,
    MailboxOrder,
    Phase,
    RankState,
    SampledDigests,
    TornError,
)
from healthd.trainer.beacons.step_ring import ENTRIES, StepRecord, unpack_entries

READ_TRIES = 20
READ_PAUSE_SECONDS = 0.0005
PATIENCE_PER_USER, PATIENCE = 4, 32  # torn pages retried in one pass
PAGES_AT_ONCE = 1024
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})  # temporary; they say nothing about the page
_UNTOLD = RankState(-1, Phase.STARTING, 0.0, 0.0, 0)


class BeaconView(NamedTuple):
    """One page at one instant. Also works on the page of a dead process.

    `damaged` maps unreadable blocks to the reason; `state` is then meaningless, `acknowledgement` and `order` are None.
    The rank still counts as present.
    """

    path: str
    identity: Identity
    state: RankState
    acknowledgement: Acknowledgement | None
    order: MailboxOrder | None
    order_sequence: int
    alive: bool
    uid: int
    ring: bytes
    damaged: dict[str, str] = {}  # noqa: RUF012 - never written to
    digests: SampledDigests | None = None

    @property
    def problem(self) -> str:
        """What is wrong with it, for people; empty if nothing is."""
        return str(BeaconError(self.path, *next(iter(self.damaged.items())))) if self.damaged else ""

    @property
    def section_name(self) -> str:
        """The section it is in, or was in when it died; empty outside of any."""
        return self.state.section.name.lower() if self.state.section else ""

    def steps(self, last: int = ENTRIES) -> list[StepRecord]:
        """Return the newest finished steps, oldest first; parsed on demand, a few microseconds each."""
        return unpack_entries(self.ring, self.state.completed, last)


def read_page(path: str, tries: int = READ_TRIES) -> BeaconView:
    """Read one page, up to `tries` times if it is torn: a torn page heals within microseconds, a damaged one does not.

    Raises:
        BeaconError: the file cannot be trusted, or does not name its owner; names the file and the field.
        FileNotFoundError: there is no such file (pages come and go).
        OSError: it cannot be read now (`SHORTAGES`), which says nothing about the page.
    """
    descriptor = open_page(path, os.O_RDONLY)
    try:
        uid = check_page_file(path, descriptor)
        for left in reversed(range(tries)):
            try:
                view, torn = _make_page_view(path, os.pread(descriptor, beacon_page.PAGE_BYTES, 0), uid)
            except TornError:
                if not left:
                    raise
            else:
                if not (torn and left):
                    return view
            time.sleep(READ_PAUSE_SECONDS)
        raise AssertionError("unreachable: the last try returns or raises")
    except FieldError as error:
        raise BeaconError(path, error.field, error.problem) from error
    finally:
        os.close(descriptor)


class RetryBudget:
    """Limits the retries in one pass: torn pages are cheap to fake and cost 10 ms each to detect."""

    def __init__(self) -> None:
        self._spent: dict[int, int] = {}

    def read(self, file: PageFile) -> BeaconView:
        """Read like `read_page`, but without retries once the user, or all users together, have used their share."""
        left = self._spent.get(file.uid, 0) < PATIENCE_PER_USER and sum(self._spent.values()) < PATIENCE
        try:
            view = read_page(file.path, 1)
        except BeaconError as error:
            if not left or not isinstance(error.__cause__, TornError):
                raise
        else:
            if not left or not view.damaged:
                return view
        self._spent[file.uid] = self._spent.get(file.uid, 0) + 1
        return read_page(file.path)


def read_all_pages(directory: str, only_uid: int | None = None) -> tuple[list[BeaconView], list[BeaconError]]:
    """Return the pages of a directory (or of one user) by name, and the errors of the others.

    Each user's newest pages come first, up to `PAGES_AT_ONCE` in all, as each takes 128 KiB. A partly damaged page is
    in both results. A missing directory means no pages.
    """
    views: list[BeaconView] = []
    errors: list[BeaconError] = []
    patience = RetryBudget()
    for file in itertools.islice(iterate_page_files(directory, only_uid), PAGES_AT_ONCE):
        try:
            view = patience.read(file)
        except FileNotFoundError:
            continue
        except BeaconError as error:
            errors.append(error)
        except OSError as error:
            errors.append(BeaconError(file.path, "file", f"cannot be read now: {error.strerror}"))
        else:
            views.append(view)
            errors += [BeaconError(view.path, *each) for each in view.damaged.items()]
    return sorted(views, key=lambda view: view.path), sorted(errors, key=lambda error: error.path)


def directory_problem(directory: str) -> str:
    """Return why a rank must not publish here; empty if it may."""
    try:
        status = os.lstat(directory)
    except OSError as error:
        return f"{error.strerror}: {directory} (is healthd running on this node?)"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory"
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {status.st_uid}, who could replace pages; it must belong to root or to you"
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        return "others may write to it and it has no sticky bit; chmod 1777"
    return ""


def writable_by_others(mode: int) -> str:
    """Return what is wrong with a page's mode; empty if only its owner may write."""
    return f"{stat.S_IMODE(mode):04o} lets other users write; a page must be 0600" if mode & 0o022 else ""


def process_start(pid: int) -> int | None:
    """Return a process's start time in clock ticks since boot; None if it has exited (also for a zombie).

    Raises:
        OSError: it cannot be read now, such as for lack of a descriptor: no reason to consider the process dead.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def process_alive(pid: int, started: int) -> bool:
    """Return whether that process still runs: a reused pid has another start time. Raises like `process_start`."""
    return process_start(pid) == started


def open_page(path: str, flags: int) -> int:
    """Open a file, which must still be checked with `check_page_file`; refuses symbolic links. Raises like `read_page`."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, *SHORTAGES):
            raise
        raise BeaconError(path, "file", f"cannot be opened: {error.strerror} (symbolic links are refused)") from error


def check_page_file(path: str, descriptor: int) -> int:
    """Return the owner of a file that looks like a page; raise `BeaconError` for any other."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise BeaconError(path, "file", "is not a regular file")
    if status.st_nlink > 1:
        raise BeaconError(path, "file", f"has {status.st_nlink} hard links, a page has one")
    problem = writable_by_others(status.st_mode)
    if problem:
        raise BeaconError(path, "mode", problem)
    if status.st_size != beacon_page.PAGE_BYTES:
        raise BeaconError(path, "size", f"{status.st_size} bytes, a page has {beacon_page.PAGE_BYTES}")
    return status.st_uid


def _read_identity(content: bytes) -> Identity:
    block = content[beacon_page.IDENTITY_AT : beacon_page.IDENTITY_AT + beacon_page.IDENTITY_BYTES]
    _, document = beacon_page.unpack_frame("identity", block)
    if document is None:
        raise FieldError("identity", "empty")
    return beacon_page.identity_from(document)


def read_current_identity(descriptor: int) -> Identity:
    """Return the writer of an open page; it writes this block again when it knows its GPU, so retry if torn."""
    for left in reversed(range(READ_TRIES)):
        head = os.pread(descriptor, beacon_page.STATE_AT, 0)
        beacon_page.check_header(head)
        try:
            return _read_identity(head)
        except TornError:
            if not left:
                raise
        time.sleep(READ_PAUSE_SECONDS)
    raise AssertionError("unreachable: the last try returns or raises")


def check_page_owner(identity: Identity, uid: int) -> bool:
    """Check whether the page's process lives; if so, it must run as the file's owner."""
    if not process_alive(identity.pid, identity.process_start):
        return False
    try:
        runs_as = _read_process_user(identity.pid, uid)
    except (OSError, ValueError, IndexError) as error:
        if isinstance(error, OSError) and error.errno in SHORTAGES:
            raise
        return False
    if runs_as != uid:
        raise FieldError("owner", f"the file is user {uid}'s, but pid {identity.pid} runs as {runs_as}")
    return True


def _read_process_user(pid: int, expected: int) -> int:
    """Return the effective user of a process."""
    owner = os.stat(f"/proc/{pid}").st_uid
    if owner == expected or owner != 0:
        return owner
    with open(f"/proc/{pid}/status", "rb") as file:  # a process that is not dumpable appears as root's above
        return int(file.read().partition(b"\nUid:")[2].split()[1])


def _make_page_view(path: str, content: bytes, uid: int) -> tuple[BeaconView, bool]:
    """Return a page, and whether another read may give more."""
    if len(content) != beacon_page.PAGE_BYTES:
        raise FieldError("size", "shrank while being read")
    beacon_page.check_header(content)
    identity = _read_identity(content)
    damaged: list[FieldError] = []
    view = BeaconView(
        path=path,
        identity=identity,
        state=_parse_part(damaged, content, _read_state) or _UNTOLD,
        acknowledgement=_parse_part(damaged, content, _read_acknowledgement),
        order=_parse_part(damaged, content, _read_order),
        order_sequence=beacon_page.FRAME_HEAD.unpack_from(content, beacon_page.MAILBOX_AT)[0],
        alive=check_page_owner(identity, uid),
        uid=uid,
        ring=content[beacon_page.RING_AT :],
        digests=_parse_part(damaged, content, _read_digests),
        damaged={
            block: f"{member}: {error.problem}".lstrip(": ")
            for error in damaged
            for block, _, member in [error.field.partition(".")]
        },
    )
    return view, any(isinstance(error, TornError) for error in damaged)


_Part = TypeVar("_Part")


def _parse_part(damaged: list[FieldError], content: bytes, parse: Callable[[bytes], _Part | None]) -> _Part | None:
    try:
        return parse(content)
    except FieldError as error:
        damaged.append(error)
        return None


def _read_state(content: bytes) -> RankState:
    return beacon_page.unpack_state(content[beacon_page.STATE_AT : beacon_page.STATE_AT + beacon_page.STATE_BYTES])


def _read_acknowledgement(content: bytes) -> Acknowledgement | None:
    at = beacon_page.ACKNOWLEDGEMENT_AT
    _, answer = beacon_page.unpack_frame("acknowledgement", content[at : at + beacon_page.ACKNOWLEDGEMENT_BYTES])
    return None if answer is None else beacon_page.acknowledgement_from(answer)


def _read_order(content: bytes) -> MailboxOrder | None:
    at = beacon_page.MAILBOX_AT
    _, order = beacon_page.unpack_frame("mailbox", content[at : at + beacon_page.MAILBOX_BYTES])
    return None if order is None else beacon_page.order_from(order)


def _read_digests(content: bytes) -> SampledDigests | None:
    at = beacon_page.DIGESTS_AT
    _, document = beacon_page.unpack_frame("digests", content[at : at + beacon_page.DIGESTS_BYTES])
    return None if document is None else beacon_page.digests_from(document)
