"""Makes msgspec inspect every message type before there are threads.

msgspec 0.22 collects a type's information on its first decode, calls Python meanwhile, and so lets another thread do
the same: two first decodes at one moment end the process with SIGSEGV (seen in a chaos run, on healthd). The
information is then kept with the type.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec


def build_decoders() -> None:
    """Collect it for each loaded `Struct`. For a program's main thread, before it starts another."""
    for kind in set(_iterate_struct_types(msgspec.Struct)):
        # Some types name things that exist for type checkers only: these are never decoded.
        with contextlib.suppress(TypeError, NameError, AttributeError):
            msgspec.json.Decoder(kind)


def _iterate_struct_types(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in kind.__subclasses__():
        yield each
        yield from _iterate_struct_types(each)
