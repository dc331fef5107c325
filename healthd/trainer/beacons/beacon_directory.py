# Directory entries and raw file status are the subject here; pathlib has no equivalent.
# ruff: noqa: PTH101, PTH103, PTH108, PTH118
"""Makes the beacon directory, and chooses which of its files to read, and when: any user may put any number there.

A pass lists and returns a limited number of files. Users take turns, so that one user's files do not block another's;
later passes read the rest.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from healthd.trainer.beacons.beacon_page import BeaconError
from healthd.trainer.beacons.stack_socket import SOCKET_SUFFIX

SUFFIX, ASIDE = ".beacon", ".tmp"
NAMES_PER_LOOK = 8192
NAMES_MAX, NAMES_PER_USER_MIN, NAMES_PER_USER_MAX = 65536, 64, 8192  # remembered; users share the first
READS_PER_LOOK, READS_PER_USER = 2048, 256  # more than a user has ranks on a node
LOOKS_MAX = 256


class PageFile(NamedTuple):
    """A directory entry and its status: equal entries are the same file, apparently with the same content."""

    path: str
    uid: int
    inode: int
    modified_ns: int
    changed_ns: int  # even its owner cannot set this one


class DirectorySweep(NamedTuple):
    """What to read now, alternating users; what needs no reading; how many files of each user must wait.

    `whole`: the listing has returned all names present at its start. `asides` are unfinished pages and sockets,
    `names` the paths of all others that are remembered.
    """

    due: list[PageFile]
    settled: list[PageFile]
    late: dict[int, int]
    whole: bool
    asides: list[PageFile]
    names: set[str]

    @property
    def over(self) -> bool:
        """Whether only files beyond a user's share are left to read."""
        return self.whole and not (self.due and self.late)


class BeaconDirectory:
    """Remembers names between passes. A missing directory means no trainers and no files."""

    def __init__(self, path: str, only_uid: int | None = None) -> None:
        self._path = path
        self._only_uid = only_uid
        self._listing: Any = None  # scandir's type has no public name
        self._known: dict[str, None] = {}
        self._listed: dict[str, None] = {}
        self._handed_out: set[str] = set()
        self._turn = -1

    def look(self, settled: Container[PageFile] = ()) -> DirectorySweep:
        """Return the next files to read; `settled` files need no reading."""
        whole = self._list()
        by_user: dict[int, list[PageFile]] = {}
        asides = []
        for name in {**self._known, **self._listed}:
            file = self._status(name)
            if file is None:
                self._forget(name)
            elif name.endswith((ASIDE, SOCKET_SUFFIX)):
                asides.append(file)
            elif self._only_uid in (None, file.uid):
                by_user.setdefault(file.uid, []).append(file)
        late = self._trim(by_user)
        at_rest = [file for files in by_user.values() for file in files if file in settled]
        waiting = {uid: [file for file in files if file not in settled] for uid, files in by_user.items()}
        due = self._in_turn({uid: files for uid, files in waiting.items() if files})
        self._handed_out = {file.path for file in due}
        for uid, files in waiting.items():
            late[uid] = late.get(uid, 0) + sum(file.path not in self._handed_out for file in files)
        late = {uid: count for uid, count in late.items() if count}
        return DirectorySweep(
            due, at_rest, late, whole, asides, {file.path for files in by_user.values() for file in files}
        )

    def _list(self) -> bool:
        """List more names; return whether the listing is complete."""
        if self._listing is None:
            self._listed = {}
            try:
                self._listing = os.scandir(self._path)
            except FileNotFoundError:
                self._known = {}
                return True
        names = [entry.name for entry in itertools.islice(self._listing, NAMES_PER_LOOK)]
        self._listed |= dict.fromkeys(name for name in names if name.endswith((SUFFIX, ASIDE, SOCKET_SUFFIX)))
        if len(names) == NAMES_PER_LOOK:
            return False
        self._known, self._listed = self._listed, {}
        self.close()
        return True

    def close(self) -> None:
        """Close an unfinished listing; the next pass starts over."""
        if self._listing is not None:
            self._listing.close()
            self._listing = None

    def _status(self, name: str) -> PageFile | None:
        path = os.path.join(self._path, name)
        try:
            status = os.lstat(path)
        except OSError:
            return None
        return PageFile(path, status.st_uid, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)
        self._listed.pop(name, None)

    def _trim(self, by_user: dict[int, list[PageFile]]) -> dict[int, int]:
        """Sort newest first and limit each user to a share of the memory; return how many were dropped."""
        share = min(NAMES_PER_USER_MAX, max(NAMES_PER_USER_MIN, NAMES_MAX // max(1, len(by_user))))
        late = {}
        for uid, files in by_user.items():
            files.sort(key=lambda file: (file.path not in self._handed_out, -file.changed_ns, file.path))
            for file in files[share:]:
                self._forget(os.path.basename(file.path))  # noqa: PTH119 - a name as the listing has it
            late[uid] = len(files) - share if len(files) > share else 0
            del files[share:]
        return late

    def _in_turn(self, by_user: dict[int, list[PageFile]]) -> list[PageFile]:
        """Return one file of each user, then the next of each; each pass starts with another user."""
        users = sorted(by_user)
        first = next((place for place, uid in enumerate(users) if uid > self._turn), 0)
        users = users[first:] + users[:first]
        rounds = itertools.zip_longest(*(by_user[uid][:READS_PER_USER] for uid in users[:READS_PER_LOOK]))
        taken = [file for each in rounds for file in each if file is not None][:READS_PER_LOOK]
        self._turn = taken[min(len(users), len(taken)) - 1].uid if len(users) > READS_PER_LOOK else -1
        return taken


def iterate_page_files(path: str, only_uid: int | None = None) -> Iterator[PageFile]:
    """Yield every page of a directory once, alternating users; for a program that makes one pass."""
    directory, seen = BeaconDirectory(path, only_uid), set[PageFile]()
    try:
        for _ in range(LOOKS_MAX):
            look = directory.look(seen)
            yield from look.due
            seen.update(look.due)
            if look.over:
                return
    finally:
        directory.close()


def remove_page_file(file: PageFile) -> bool:
    """Delete a file if it is unchanged since it was seen; return whether it is gone. Ignores missing permission."""
    try:
        status = os.lstat(file.path)
        if (status.st_ino, status.st_ctime_ns) != (file.inode, file.changed_ns):
            return False
        os.unlink(file.path)
    except OSError:
        return False
    return True


def prepare_directory(directory: str) -> None:
    """Create the beacon directory for ranks of any user: sticky, writable by all. Called by the daemon at start.

    Raises:
        BeaconError: it exists and is not ours, or is not a directory.
        OSError: it cannot be created.
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
    os.chmod(directory, 0o1777)  # noqa: S103 - as /tmp: any user's rank makes its page, no user can remove another's
