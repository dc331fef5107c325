"""Reads flight recorder dumps: pickles of plain values, or the same as JSON.

A pickle may run any program when it is read. These hold dictionaries, lists, numbers and texts only, so a reader that
refuses to import anything reads every honest one and runs nothing of the others; what a reader may allocate is bounded.
"""

from __future__ import annotations

import json
import pickle
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec

BYTES_MAX = 256 << 20  # of one file; 20 000 entries with deep stacks are some tens of MiB
MEMORY_MAX = 8 << 30  # of this process while it reads: a small pickle can ask for any amount
_RANK = re.compile(r"(\d+)(?:\.(?:pkl|pickle|pt|bin|json))?$")


class DumpError(ValueError):
    """A dump that cannot be read; the text names the file."""


class Frame(msgspec.Struct, frozen=True):
    """One line of the stack that called the collective, innermost first."""

    name: str = ""
    filename: str = ""
    line: int = 0


class Entry(msgspec.Struct, frozen=True):
    """One operation of a process group as a rank recorded it; the fields are PyTorch's."""

    process_group: tuple[str, str]  # name, description
    collective_seq_id: int = 0
    record_id: int = 0
    profiling_name: str = ""  # backend:operation
    input_sizes: list[list[int]] = []
    input_dtypes: list[str] = []
    state: str = ""  # scheduled, started, completed
    retired: bool = False  # waited for, and done with: the only sign of completion that gloo gives
    is_p2p: bool = False
    frames: list[Frame] = []

    @property
    def done(self) -> bool:
        """Nobody waits for it any more."""
        return self.retired or self.state == "completed"


class Group(msgspec.Struct, frozen=True):
    """A process group as a rank knows it; `ranks` are global ones, as text in brackets."""

    name: str = ""
    desc: str = ""
    ranks: str | list[int] = ""


class Dump(msgspec.Struct, frozen=True):
    """What one rank left."""

    entries: list[Entry] = []
    pg_config: dict[str, Group] = {}
    version: str = ""

    def members(self, group: str) -> tuple[int, ...]:
        """Global ranks of a group; empty where the dump does not tell."""
        said = self.pg_config[group].ranks if group in self.pg_config else ""
        try:
            ranks = json.loads(said) if isinstance(said, str) else said
            return tuple(sorted({int(rank) for rank in ranks}))
        except (ValueError, TypeError):
            return ()


def read_directory(directory: Path) -> dict[int, Dump]:
    """The dumps of a directory by rank: files whose name ends in a number. A rank's pickle goes before its JSON, which lacks stacks.

    Raises:
        DumpError: one cannot be read, or two are of one rank.
        OSError: the directory cannot be read.
    """
    found: dict[int, Path] = {}
    for path in sorted(directory.iterdir(), key=lambda path: (path.suffix == ".json", path.name)):
        match = _RANK.search(path.name)
        if match is None or not path.is_file():
            continue
        rank = int(match[1])
        if rank in found and path.suffix != ".json":
            raise DumpError(
                f"{path} and {found[rank].name} are both of rank {rank}; keep one job's dumps to a directory"
            )
        found.setdefault(rank, path)
    return {rank: read_dump(path) for rank, path in sorted(found.items())}


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
        with _bounded_memory():
            plain = json.loads(content) if content[:1] == b"{" else _Plain(BytesIO(content)).load()
            return msgspec.convert(plain, Dump, strict=False)
    except MemoryError:
        raise DumpError(f"{path}: asks for more memory than any dump needs") from None
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise DumpError(f"{path}: no flight recorder dump: {error}") from error


class _Plain(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise DumpError(f"it wants to import {module_name}.{global_name}, which a dump never does")

    def persistent_load(self, pid: Any, /) -> Any:  # noqa: ARG002 - pickle's signature
        raise DumpError("it refers to something outside, which a dump never does")


@contextmanager
def _bounded_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = MEMORY_MAX if soft == resource.RLIM_INFINITY else min(MEMORY_MAX, soft)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
