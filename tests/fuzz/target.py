"""What is fuzzed: a parser, what it may begin with, and what must hold of every case."""

from __future__ import annotations

import ast
import atexit
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

CORPUS = Path(__file__).with_name("corpus")


class Target(NamedTuple):
    """`judge` raises where a case breaks a property; `seeds` are cases to begin with, also those that once broke one."""

    judge: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    bytes_max: int = 2048  # of one case


def scratch() -> Path:
    """A folder for a reader that takes a path; it goes with the process."""
    place = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def text(data: bytes) -> str:
    """As our readers decode what is no UTF-8."""
    return data.decode(errors="replace")


def corpus_of(name: str) -> list[bytes]:
    """The cases kept of former campaigns: a line each, as Python writes bytes. None for a target that is new."""
    file = CORPUS / f"{name}.txt"
    return [ast.literal_eval(line) for line in file.read_text().splitlines()] if file.exists() else []
