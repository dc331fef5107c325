# Descriptors and open flags are the subject here; pathlib has no words for them.
# ruff: noqa: PTH101, PTH103, PTH108, PTH116, PTH118, PTH123, PTH208
"""The reader's side of the beacon directory: the node daemon, `healthctl`, and a rank that looks before it writes.

Pages belong to users the daemon does not trust. So: no symlinks, no shared write permission, the size must be exact,
a living process must own its page, and the file is read and written by pread/pwrite, never mapped (a user who
truncates a mapped file kills its reader).
"""

from __future__ import annotations

import os
import stat
import time
from typing import NamedTuple

from healthd.trainer import page
from healthd.trainer.page import Acknowledgement, BeaconError, FieldError, Identity, MailboxOrder, State
from healthd.trainer.ring import ENTRIES, StepRecord, unpack

SUFFIX = ".beacon"
READ_TRIES = 20
READ_PAUSE_SECONDS = 0.0005


class BeaconView(NamedTuple):
    """One page as it stood at one instant. Works on the page of a dead process."""

    path: str
    identity: Identity
    state: State
    acknowledgement: Acknowledgement | None
    order: MailboxOrder | None
    order_sequence: int
    alive: bool
    uid: int
    ring: bytes

    @property
    def section_name(self) -> str:
        """The section it is in, or was in when it died; empty outside of any."""
        return self.state.section.name.lower() if self.state.section else ""

    def steps(self, last: int = ENTRIES) -> list[StepRecord]:
        """The newest finished steps, oldest first; parsed on demand, a few microseconds each."""
        return unpack(self.ring, self.state.completed, last)


def read(path: str) -> BeaconView:
    """Read one page.

    Raises:
        BeaconError: the file cannot be trusted or understood; names the file and the field.
        FileNotFoundError: there is no such file (pages come and go).
    """
    descriptor = _open(path, os.O_RDONLY)
    try:
        uid = _check_file(path, descriptor)
        for attempt in range(READ_TRIES):
            try:
                return _view(path, os.pread(descriptor, page.PAGE_BYTES, 0), uid)
            except FieldError as error:
                if attempt == READ_TRIES - 1:  # torn blocks heal within microseconds, damaged ones do not
                    raise BeaconError(path, error.field, error.problem) from error
                time.sleep(READ_PAUSE_SECONDS)
        raise AssertionError("unreachable: the last try returns or raises")
    finally:
        os.close(descriptor)


def read_all(directory: str) -> tuple[list[BeaconView], list[BeaconError]]:
    """Every page of a directory, by name, and what was wrong with the others. No directory: no trainers, no pages."""
    views: list[BeaconView] = []
    errors: list[BeaconError] = []
    for path in _paths(directory):
        try:
            views.append(read(path))
        except FileNotFoundError:
            continue
        except BeaconError as error:
            errors.append(error)
    return views, errors


def post_order(path: str, order: MailboxOrder) -> int:
    """Put an order into a rank's mailbox, over the one that is there; the same order again changes nothing.

    Returns:
        The mailbox's sequence number.

    Raises:
        BeaconError: the page cannot be trusted or understood, or the order does not fit.
        FileNotFoundError: there is no such page.
    """
    descriptor = _open(path, os.O_RDWR)
    try:
        uid = _check_file(path, descriptor)
        head = os.pread(descriptor, page.STATE_AT, 0)
        page.check_header(head)
        _check_owner(_identity(head), uid)
        block = os.pread(descriptor, page.MAILBOX_BYTES, page.MAILBOX_AT)
        sequence = page.FRAME_HEAD.unpack_from(block)[0]
        if _held(block) == order:
            return int(sequence)
        sequence = (sequence + 1) % (1 << 63) or 1
        frame = page.pack_frame("mailbox", sequence, order._asdict(), page.MAILBOX_BYTES)
        os.pwrite(descriptor, frame[8:], page.MAILBOX_AT + 8)
        os.pwrite(descriptor, frame[:8], page.MAILBOX_AT)  # last: the rank looks at nothing else
        return int(sequence)
    except FieldError as error:
        raise BeaconError(path, error.field, error.problem) from error
    finally:
        os.close(descriptor)


def remove_old(directory: str, now: float, keep_seconds: float) -> list[str]:
    """Delete the pages of dead processes that fell silent before `now - keep_seconds`, and what nobody can read.

    Returns:
        The paths that are gone. What may not be deleted (another user's) is left alone.
    """
    gone = []
    for path in _paths(directory, suffixes=(SUFFIX, ".tmp")):
        try:
            if _last_sign_of_life(path, now) < now - keep_seconds:
                os.unlink(path)
                gone.append(path)
        except OSError:
            continue
    return gone


def prepare_directory(directory: str) -> None:
    """Make the beacon directory as ranks of any user need it: sticky, writable by all. For the daemon, at start.

    Raises:
        BeaconError: it exists and is not ours, or is not a directory.
        OSError: it cannot be made.
    """
    os.makedirs(directory, exist_ok=True)
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode):
        raise BeaconError(directory, "directory", "is not a directory; remove it")
    if status.st_uid != os.geteuid():
        if os.geteuid() != 0:
            raise BeaconError(
                directory, "directory", f"belongs to user {status.st_uid}; run as that user, or remove it"
            )
        os.chown(directory, 0, 0, follow_symlinks=False)
    os.chmod(directory, 0o1777)  # noqa: S103 - as /tmp: any user's rank makes its page, nobody touches another's


def directory_problem(directory: str) -> str:
    """Why a rank must not publish here; empty when it may."""
    try:
        status = os.lstat(directory)
    except OSError as error:
        return f"{error.strerror}: {directory} (is healthd running on this node?)"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory"
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {status.st_uid}, who could swap pages; it must be root's or yours"
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        return "others may write to it and it has no sticky bit; chmod 1777"
    return ""


def writable_by_others(mode: int) -> str:
    """What is wrong with the mode of a page; empty when only its owner may write."""
    return f"{stat.S_IMODE(mode):04o} lets others write; a page is 0600" if mode & 0o022 else ""


def process_start(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None for one that is gone (a zombie is)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def process_alive(pid: int, started: int) -> bool:
    """Whether that very process still runs: a reused pid has another start time."""
    return process_start(pid) == started


def _paths(directory: str, suffixes: tuple[str, ...] = (SUFFIX,)) -> list[str]:
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    return [os.path.join(directory, name) for name in names if name.endswith(suffixes)]


def _open(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BeaconError(path, "file", f"cannot be opened: {error.strerror} (symbolic links are refused)") from error


def _check_file(path: str, descriptor: int) -> int:
    """The owner of a file that looks like a page; raises `BeaconError` for any other."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise BeaconError(path, "file", "is not a regular file")
    if status.st_nlink > 1:
        raise BeaconError(path, "file", f"has {status.st_nlink} hard links, a page has one")
    problem = writable_by_others(status.st_mode)
    if problem:
        raise BeaconError(path, "mode", problem)
    if status.st_size != page.PAGE_BYTES:
        raise BeaconError(path, "size", f"{status.st_size} bytes, a page has {page.PAGE_BYTES}")
    return status.st_uid


def _identity(content: bytes) -> Identity:
    block = content[page.IDENTITY_AT : page.IDENTITY_AT + page.IDENTITY_BYTES]
    _, document = page.unpack_frame("identity", block)
    if document is None:
        raise FieldError("identity", "empty")
    return page.identity_from(document)


def _check_owner(identity: Identity, uid: int) -> bool:
    """Whether the page's process lives; if it does, it must be the file's owner that runs it."""
    if not process_alive(identity.pid, identity.process_start):
        return False
    try:
        runs_as = _runs_as(identity.pid, uid)
    except (OSError, ValueError, IndexError):
        return False
    if runs_as != uid:
        raise FieldError("owner", f"the file is user {uid}'s, but pid {identity.pid} runs as {runs_as}")
    return True


def _runs_as(pid: int, expected: int) -> int:
    """The effective user of a process."""
    owner = os.stat(f"/proc/{pid}").st_uid
    if owner == expected or owner != 0:
        return owner
    with open(f"/proc/{pid}/status", "rb") as file:  # a process that is not dumpable shows as root's above
        return int(file.read().partition(b"\nUid:")[2].split()[1])


def _view(path: str, content: bytes, uid: int) -> BeaconView:
    if len(content) != page.PAGE_BYTES:
        raise FieldError("size", "shrank while being read")
    page.check_header(content)
    identity = _identity(content)
    state = page.unpack_state(content[page.STATE_AT : page.STATE_AT + page.STATE_BYTES])
    at = page.ACKNOWLEDGEMENT_AT
    _, answer = page.unpack_frame("acknowledgement", content[at : at + page.ACKNOWLEDGEMENT_BYTES])
    at = page.MAILBOX_AT
    sequence, order = page.unpack_frame("mailbox", content[at : at + page.MAILBOX_BYTES])
    return BeaconView(
        path=path,
        identity=identity,
        state=state,
        acknowledgement=None if answer is None else page.acknowledgement_from(answer),
        order=None if order is None else page.order_from(order),
        order_sequence=sequence,
        alive=_check_owner(identity, uid),
        uid=uid,
        ring=content[page.RING_AT :],
    )


def _held(block: bytes) -> MailboxOrder | None:
    try:
        _, document = page.unpack_frame("mailbox", block)
        return None if document is None else page.order_from(document)
    except FieldError:
        return None  # damaged: the new order overwrites it


def _last_sign_of_life(path: str, now: float) -> float:
    try:
        view = read(path)
    except BeaconError:
        return os.lstat(path).st_mtime
    return now if view.alive else view.state.at
