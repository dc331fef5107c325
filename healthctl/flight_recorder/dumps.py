"""Reads flight recorder dumps: pickles of plain values, or the same as JSON.

A pickle may run any program when it is read. These hold dictionaries, lists, numbers and texts only, so a reader that
refuses to import anything reads every honest one and runs nothing of the others; what a reader may allocate is bounded.
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

BYTES_MAX = 256 << 20  # of one file; 20 000 entries with deep stacks are some tens of MiB
MEMORY_MAX = 8 << 30  # for one dump while it is read: a small pickle can ask for any amount
MEMORY_OF_ANY, MEMORY_PER_BYTE = (
    512 << 20,
    64,
)  # less for a smaller one; a dictionary of a stack takes twelve times its pickle
RANKS_MAX = 1 << 20  # more than any job has: a number beyond it is damage, and a list up to it would fill the memory
_RANKS = re.compile(r"[\[\]\d,\s]*")
_RANK = re.compile(r"(\d+)(?:\.[a-z]\w*)?$")


class DumpError(ValueError):
    """A dump that cannot be read; the text names the file."""


class Frame(msgspec.Struct, frozen=True):
    """One line of the stack that called the collective, innermost first."""

    name: str = ""
    filename: str = ""
    line: int = 0


class Entry(msgspec.Struct, frozen=True):
    """One operation of a process group as a rank recorded it; the fields are PyTorch's. Sizes are told in several ways."""

    process_group: list[str] | str = ""  # name, description
    collective_seq_id: int | None = None
    seq_id: int = 0  # what it was called before 2.4
    p2p_seq_id: int | None = None
    record_id: int = 0
    pg_id: int = 0
    profiling_name: str = ""  # backend:operation
    input_sizes: Any = None
    output_sizes: Any = None
    input_dtypes: Any = None
    output_dtypes: Any = None
    state: str | None = ""  # scheduled, started, completed
    retired: bool | None = False  # nobody waits for it any more: done, or given up
    is_p2p: bool | None = False
    time_created_ns: int | float | None = None
    time_discovered_started_ns: int | float | None = None
    frames: list[Frame] = []

    @property
    def number(self) -> int:
        """Of the collective in its group."""
        return self.seq_id if self.collective_seq_id is None else self.collective_seq_id

    @property
    def group(self) -> tuple[str, str]:
        """Name and description."""
        said = [self.process_group] if isinstance(self.process_group, str) else self.process_group
        name, description = [*said, "", ""][:2]
        return name if said and said != [""] else str(self.pg_id), description

    @property
    def called(self) -> tuple[str, str]:
        """Backend and operation, with the two ends if it is a send or a receive."""
        backend, colon, operation = self.profiling_name.partition(":")
        return (backend, operation) if colon else ("", backend)


class Group(msgspec.Struct, frozen=True):
    """A process group as a rank knows it; `ranks` are global ones in the group's order, as text in brackets."""

    name: str = ""
    desc: str = ""
    ranks: Any = ""

    @property
    def members(self) -> tuple[int, ...]:
        """Global ranks; empty where the dump does not tell, or tells what no job has."""
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
    """The last numbers of one process group; -1 where nothing is known."""

    last_enqueued_collective: int | None = -1
    last_started_collective: int | None = -1
    last_completed_collective: int | None = -1


class Dump(msgspec.Struct, frozen=True):
    """What one rank left."""

    entries: list[Entry] | None = None
    pg_config: dict[str, Group] | None = None
    pg_status: dict[str, Progress] | None = None

    @property
    def calls(self) -> list[Entry]:
        """In the order in which they were made."""
        return sorted(self.entries or (), key=lambda entry: entry.record_id)

    @property
    def groups(self) -> dict[str, Group]:
        """By name."""
        return self.pg_config or {}


class DumpDirectory(msgspec.Struct, frozen=True):
    """The dumps of a directory by rank, and what was wrong with those that cannot be read."""

    dumps: dict[int, Dump]
    unreadable: dict[int, str] = {}


def read_directory(directory: Path) -> DumpDirectory:
    """Files whose name ends in a number, the rank. A rank's pickle goes before its JSON, which lacks stacks.

    A rank may die while it writes: its dump counts as unreadable, and those of the others are judged without it. What
    else ends in a number is no dump if those that are have other names.

    Raises:
        DumpError: two are of one rank.
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
            wrong[rank] = name, f"{path}: no job has a rank {rank}"
            continue
        try:
            dump = read_dump(path)
        except (DumpError, OSError) as error:
            wrong.setdefault(rank, (name, str(error)))
            continue
        if rank in read:
            both = f"{read[rank]} and {path.name} are both of rank {rank}"
            raise DumpError(f"{both}; keep one job's dumps to a directory")
        read[rank], dumps[rank] = path, dump
    names = {name for rank, name, path in found if read.get(rank) == path}
    unreadable = {
        rank: said for rank, (name, said) in wrong.items() if rank not in dumps and (name in names or not names)
    }
    return DumpDirectory(dict(sorted(dumps.items())), dict(sorted(unreadable.items())))


def read_dump(path: Path) -> Dump:
    """One dump.

    Raises:
        DumpError: it is too large, holds what no dump holds, or lacks what every dump has.
        OSError: it cannot be opened.
    """
    if path.stat().st_size > BYTES_MAX:
        raise DumpError(f"{path}: longer than {BYTES_MAX >> 20} MiB, which no dump is")
    content = path.read_bytes()
    try:
        with _bounded_memory(min(MEMORY_MAX, MEMORY_OF_ANY + MEMORY_PER_BYTE * len(content))):
            plain = json.loads(content) if content.lstrip()[:1] == b"{" else _PlainUnpickler(BytesIO(content)).load()
            if isinstance(plain, dict) and {"entries", "pg_config", "pg_status"} & plain.keys():
                _keep_last_stack(plain.get("entries"))
                for name in ("pg_config", "pg_status"):  # some writers count groups where PyTorch names them
                    if isinstance(plain.get(name), dict):
                        plain[name] = {str(key): value for key, value in plain[name].items()}
                return msgspec.convert(plain, Dump, strict=False)
    except MemoryError:
        raise DumpError(f"{path}: asks for more memory than any dump needs") from None
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise DumpError(f"{path}: no flight recorder dump: {error}") from error
    raise DumpError(f"{path}: no flight recorder dump: it has neither entries nor process groups")


def _keep_last_stack(entries: Any) -> None:
    """Only where a rank was last is ever shown, and the stacks are most of a dump."""
    for place, entry in enumerate(reversed(entries) if isinstance(entries, list) else ()):
        if isinstance(entry, dict) and "frames" in entry:
            frames = entry.pop("frames") if place else entry["frames"]
            entry["frames"] = [frame for frame in frames or () if isinstance(frame, dict)] if not place else []


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise DumpError(f"it wants to import {module_name}.{global_name}, which a dump never does")

    def persistent_load(self, pid: Any, /) -> Any:  # noqa: ARG002 - pickle's signature
        raise DumpError("it refers to something outside, which a dump never does")


@contextmanager
def _bounded_memory(most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()  # by other dumps, for one
    wanted = used + most if soft == resource.RLIM_INFINITY else min(used + most, soft)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
