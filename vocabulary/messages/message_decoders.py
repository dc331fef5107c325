"""Has msgspec look at every message type before there are threads.

msgspec 0.22 gathers what it knows of a type when that type is first decoded, calls Python on the way, and so lets another
thread in that may do the same: two first decodes at one moment end the process with SIGSEGV (seen in a chaos run, on healthd).
What was gathered once is kept with the type.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec


def build_decoders() -> None:
    """Gather it for each `Struct` that is loaded. For a program's main thread, before it starts another."""
    for kind in set(_iterate_struct_types(msgspec.Struct)):
        # Of some, names are there for type checkers only: nobody decodes those.
        with contextlib.suppress(TypeError, NameError, AttributeError):
            msgspec.json.Decoder(kind)


def _iterate_struct_types(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in kind.__subclasses__():
        yield each
        yield from _iterate_struct_types(each)
