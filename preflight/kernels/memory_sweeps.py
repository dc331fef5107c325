"""The passes of a memory test, for any method of writing and verifying: Triton kernels or torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from preflight.kernels.memory_errors import Errors, Piece
from preflight.kernels.memory_patterns import Pattern


class Pass(Protocol):
    """Going over pieces once. Launch on every piece, then ask for `errors` once: that waits for the device."""

    def launch(self, piece: Piece, *, repeats: int = 1) -> None:
        """Verify one piece, `repeats` times."""

    def errors(self, pieces: Sequence[Piece]) -> Errors:
        """The errors found. Listed words are read again here, after the whole pass has gone through the caches."""


class Way(Protocol):
    """How words are written and verified."""

    @property
    def name(self) -> str:
        """What results say of it."""

    def write(self, piece: Piece, pattern: Pattern) -> None:
        """Write `pattern` into one piece; may return before the device has done it."""

    def begin(self, pattern: Pattern, device: str, following: Pattern | None = None) -> Pass:
        """A pass that verifies `pattern`, and writes `following` to correct blocks."""


def _ignore_pattern(_: Pattern) -> None:
    pass


def verify_pieces(way: Way, pieces: Sequence[Piece], pattern: Pattern, *, repeats: int = 1) -> Errors:
    """Compare all pieces with `pattern`; waits for the answer."""
    going = way.begin(pattern, str(pieces[0].memory.device))
    for piece in pieces:
        going.launch(piece, repeats=repeats)
    return going.errors(pieces)


def sweep_patterns(
    way: Way,
    pieces: Sequence[Piece],
    patterns: Sequence[Pattern],
    standing: Callable[[Pattern], None] = _ignore_pattern,
) -> list[Errors]:
    """Write each pattern over all pieces and verify it while the next is written: n + 1 passes for n patterns.

    One entry for each pattern that did not hold. A pass with errors leaves its blocks as they were, so what follows
    it is written again and no error is reported twice. `standing` is called when a pattern has been written everywhere and
    nothing of it has been verified.
    """
    device = str(pieces[0].memory.device)
    for piece in pieces:
        way.write(piece, patterns[0])
    found = []
    for pattern, following in zip(patterns, [*patterns[1:], None], strict=True):
        standing(pattern)
        going = way.begin(pattern, device, following)
        for piece in pieces:
            going.launch(piece)
        errors = going.errors(pieces)
        if errors.wrong:
            found.append(errors)
            for piece in pieces if following else ():
                way.write(piece, following or pattern)
    return found


def hold_and_verify(way: Way, pieces: Sequence[Piece], pattern: Pattern, wait: Callable[[], None]) -> Errors:
    """Write, `wait` (work that heats the card, for as long as its cells should hold), then verify."""
    for piece in pieces:
        way.write(piece, pattern)
    wait()
    return verify_pieces(way, pieces, pattern)
