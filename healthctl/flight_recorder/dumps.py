"""Reads flight recorder dumps: pickles of plain values, or the same as JSON.

Unpickling can execute any code. Dumps hold only dictionaries, lists, numbers and texts, so this reader refuses all
imports: it reads every genuine dump and executes nothing. Memory use is limited.
"""

from __future__ import annotations

import json
import pickle
import re
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec

BYTES_MAX = 256 << 20  # per file; 20 000 entries with deep stacks are some tens of MiB
MEMORY_MAX = 8 << 30  # per dump: a small pickle can request any amount of memory
MEMORY_OF_ANY, MEMORY_PER_BYTE = (
    512 << 20,
    64,
)  # less for smaller files; the dictionary of a stack takes twelve times its pickled size
RANKS_MAX = (
    1 << 20
)  # more than any job has; a larger number is corruption, and a list of that length would fill the memory
_RANKS = re.compile(r"[\[\]\d,\s]*")
_RANK = re.compile(r"(\d+)(?:\.[a-z]\w*)?$")


class DumpError(ValueError):
    """A dump that cannot be read; the message names the file."""


class Frame(msgspec.Struct, frozen=True):
    """One line of the stack that called the collective, innermost first."""

    name: str = ""
    filename: str = ""
    line: int = 0


class Entry(msgspec.Struct, frozen=True):
    """One operation of a process group as a rank recorded it, with PyTorch's field names. Sizes have several formats."""

    process_group: list[str] | str = ""  # name, description
    collective_seq_id: int | None = None
    seq_id: int = 0  # its name before PyTorch 2.4
    p2p_seq_id: int | None = None
    record_id: int = 0
    pg_id: int = 0
    profiling_name: str = ""  # backend:operation
    input_sizes: Any = None
    output_sizes: Any = None
    input_dtypes: Any = None
    output_dtypes: Any = None
    state: str | None = ""  # scheduled, started, completed
    retired: bool | None = False  # no longer awaited: completed, or given up
    is_p2p: bool | None = False
    time_created_ns: int | float | None = None
    time_discovered_started_ns: int | float | None = None
    frames: list[Frame] = []

    @property
    def number(self) -> int:
        """The number of the collective in its group."""
        return self.seq_id if self.collective_seq_id is None else self.collective_seq_id

    @property
    def group(self) -> tuple[str, str]:
        """Name and description."""
        said = [self.process_group] if isinstance(self.process_group, str) else self.process_group
        name, description = [*said, "", ""][:2]
        return name if said and said != [""] else str(self.pg_id), description

    @property
    def called(self) -> tuple[str, str]:
        """Backend and operation, with both ends of a send or receive."""
        backend, colon, operation = self.profiling_name.partition(":")
        return (backend, operation) if colon else ("", backend)


class Group(msgspec.Struct, frozen=True):
    """A process group as a rank records it; `ranks` are global ranks in the group's order, as text in brackets."""

    name: str = ""
    desc: str = ""
    ranks: Any = ""

    @property
    def members(self) -> tuple[int, ...]:
        """Global ranks; empty if missing or implausible."""
        if isinstance(self.ranks, str):
            return _parse_ranks(self.ranks)
        try:
            return _bounded_ranks(int(rank) for rank in self.ranks or ())
        except (ValueError, TypeError, OverflowError):
            return ()


@lru_cache(maxsize=4096)  # every member of a group writes the same long text
def _parse_ranks(text: str) -> tuple[int, ...]:
    return _bounded_ranks(map(int, re.findall(r"\d{1,9}", text))) if _RANKS.fullmatch(text) else ()


def _bounded_ranks(ranks: Iterable[int]) -> tuple[int, ...]:
    told = tuple(dict.fromkeys(ranks))
    return told if all(0 <= rank < RANKS_MAX for rank in told) else ()


class Progress(msgspec.Struct, frozen=True):
    """The last numbers of one process group; -1 if unknown."""

    last_enqueued_collective: int | None = -1
    last_started_collective: int | None = -1
    last_completed_collective: int | None = -1


class Dump(msgspec.Struct, frozen=True):
    """The dump of one rank. `written_ns`: when its file was written, UTC ns; 0 if unknown."""

    entries: list[Entry] | None = None
    pg_config: dict[str, Group] | None = None
    pg_status: dict[str, Progress] | None = None
    written_ns: int = 0

    @property
    def calls(self) -> list[Entry]:
        """Entries in the order of their calls."""
        return sorted(self.entries or (), key=lambda entry: entry.record_id)

    @property
    def groups(self) -> dict[str, Group]:
        """Groups by name."""
        return self.pg_config or {}


class DumpDirectory(msgspec.Struct, frozen=True):
    """The dumps of a directory by rank, and the errors of unreadable ones."""

    dumps: dict[int, Dump]
    unreadable: dict[int, str] = {}


def read_directory(directory: Path) -> DumpDirectory:
    """Read files whose name ends in a number, the rank. A pickle takes precedence over the rank's JSON, which lacks stacks.

    A rank may die while it writes; its dump counts as unreadable and the other dumps are used. Other files that end in a
    number are ignored if their names differ from those of the dumps.

    Raises:
        DumpError: two dumps belong to one rank.
        OSError: the directory cannot be read.
    """
    found = [
        (int(match[1]), path.name[: match.start()], path)
        for path in sorted(directory.iterdir(), key=lambda path: (path.suffix == ".json", path.name))
        if (match := _RANK.search(path.name)) is not None and path.is_file()
    ]
    read: dict[int, Path] = {}
    dumps: dict[int, Dump] = {}
    wrong: dict[int, tuple[str, str]] = {}
    for rank, name, path in found:
        if path.suffix == ".json" and rank in read and read[rank].suffix != ".json":
            continue
        if rank >= RANKS_MAX:
            wrong[rank] = name, f"{path}: implausible rank {rank}"
            continue
        try:
            dump = read_dump(path)
        except (DumpError, OSError) as error:
            wrong.setdefault(rank, (name, str(error)))
            continue
        if rank in read:
            both = f"{read[rank]} and {path.name} both belong to rank {rank}"
            raise DumpError(f"{both}; use one directory per job")
        read[rank], dumps[rank] = path, dump
    names = {name for rank, name, path in found if read.get(rank) == path}
    unreadable = {
        rank: said for rank, (name, said) in wrong.items() if rank not in dumps and (name in names or not names)
    }
    return DumpDirectory(dict(sorted(dumps.items())), dict(sorted(unreadable.items())))


def read_dump(path: Path) -> Dump:
    """Read one dump.

    Raises:
        DumpError: it is too large, contains unexpected types, or lacks required fields.
        OSError: it cannot be opened.
    """
    if path.stat().st_size > BYTES_MAX:
        raise DumpError(f"{path}: longer than {BYTES_MAX >> 20} MiB, the limit for a dump")
    content = path.read_bytes()
    try:
        with _bounded_memory(min(MEMORY_MAX, MEMORY_OF_ANY + MEMORY_PER_BYTE * len(content))):
            plain = json.loads(content) if content.lstrip()[:1] == b"{" else _PlainUnpickler(BytesIO(content)).load()
            if isinstance(plain, dict) and {"entries", "pg_config", "pg_status"} & plain.keys():
                _keep_last_stack(plain.get("entries"))
                for name in ("pg_config", "pg_status"):  # some writers use group numbers instead of PyTorch's names
                    if isinstance(plain.get(name), dict):
                        plain[name] = {str(key): value for key, value in plain[name].items()}
                plain["written_ns"] = path.stat().st_mtime_ns
                return msgspec.convert(plain, Dump, strict=False)
    except MemoryError:
        raise DumpError(f"{path}: needs more memory than any valid dump") from None
    except Exception as error:  # a corrupt pickle may raise nearly anything
        raise DumpError(f"{path}: not a flight recorder dump: {error}") from error
    raise DumpError(f"{path}: not a flight recorder dump: it has neither entries nor process groups")


def _keep_last_stack(entries: Any) -> None:
    """Drop all stacks except the last, which is the only one shown; stacks are most of a dump."""
    for place, entry in enumerate(reversed(entries) if isinstance(entries, list) else ()):
        if isinstance(entry, dict) and "frames" in entry:
            frames = entry.pop("frames") if place else entry["frames"]
            entry["frames"] = [frame for frame in frames or () if isinstance(frame, dict)] if not place else []


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise DumpError(f"it imports {module_name}.{global_name}, which a valid dump never does")

    def persistent_load(self, pid: Any, /) -> Any:  # noqa: ARG002 - pickle's signature
        raise DumpError("it refers to external data, which a valid dump never does")


@contextmanager
def _bounded_memory(most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    )  # already used, for example by other dumps
    wanted = used + most if soft == resource.RLIM_INFINITY else min(used + most, soft)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
