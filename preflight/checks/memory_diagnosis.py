"""Classifies memory errors, and builds the result. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from preflight.check_context import Device
from preflight.kernels.memory_errors import WORD_BYTES, Errors, WrongWord
from preflight.kernels.memory_patterns import ALL_BITS, HASH, Pattern, find_address
from preflight.results import Location, Outcome, Result
from vocabulary.text.plurals import format_count

LISTED = 8
LOCATIONS = 16
PATTERNS_NAMED = 3
LINE_WORDS = 16  # this many words with the same wrong bit are not single-cell faults
LINE_SHARE = 0.9


class MemoryFaultKind(str, enum.Enum):
    """The pattern of the errors."""

    ALIAS = "alias"  # an address returns the data of another
    DATA_LINE = "data_line"  # the same bit of many words
    STUCK_BIT = "stuck_bit"  # one bit of one word has a constant value
    REPEATED = "repeated"  # the same words are wrong again after a rewrite
    CHANGED_ONCE = "changed_once"  # wrong until rewritten
    MISREAD = "misread"  # correct on the second read
    DECAYED = "decayed"  # wrong after a while, correct when read at once
    MISMOVED = "mismoved"  # wrongly copied or filled, or not at all
    HAMMERED = "hammered"  # wrong each time rows near them are activated often
    INTERMITTENT = "intermittent"  # other words each time


class Diagnosis(NamedTuple):
    """The class, and the sentence with its evidence."""

    kind: MemoryFaultKind
    words: str


def diagnose_errors(
    first: Sequence[Errors], second: Sequence[Errors], patterns: Mapping[str, Pattern], words: int
) -> Diagnosis:
    """Classify the errors of the `first` round, given the errors of a `second` one over the same memory.

    `patterns` are those of `first` by name; `words` is the number of words tested.
    """
    if aliases := _find_aliases(first, patterns, words):
        return Diagnosis(MemoryFaultKind.ALIAS, _describe_aliases(aliases))
    many = max(first, key=lambda errors: errors.wrong)
    places = len({word.address for word in many.listed})  # some are read, and so counted, more than once
    if places >= LINE_WORDS and max(many.bits) >= LINE_SHARE * many.wrong:
        bit = many.bits.index(max(many.bits))
        return Diagnosis(MemoryFaultKind.DATA_LINE, f"bit {bit} of many words: a data line, or a column of cells")
    before, after = _collect_listed_words(first), _collect_listed_words(second)
    if not after and not any(errors.wrong for errors in second):
        if all(word.kind == "transient" for word in before):
            return Diagnosis(
                MemoryFaultKind.MISREAD,
                "correct when read again: the read or the transfer was wrong, not the stored data",
            )
        return Diagnosis(MemoryFaultKind.CHANGED_ONCE, "correct after being rewritten")
    if not {word.address for word in before} & {word.address for word in after}:
        return Diagnosis(MemoryFaultKind.INTERMITTENT, "after a rewrite, other words are wrong")
    return _diagnose_stuck_bit([*before, *after]) or Diagnosis(
        MemoryFaultKind.REPEATED, "after a rewrite, the same words are wrong again"
    )


def diagnose_decay(found: Sequence[Errors]) -> Diagnosis:
    """Memory that is wrong after holding data, and correct when read at once."""
    listed = _collect_listed_words(found)
    lost = sum((word.expected & ~word.actual).bit_count() for word in listed)
    gained = sum((word.actual & ~word.expected).bit_count() for word in listed)
    return Diagnosis(
        MemoryFaultKind.DECAYED,
        f"the data changed while held, and was correct right after the write ({lost} bits went to 0, {gained} to 1)",
    )


def build_failed_result(so_far: Result, found: Sequence[Errors], diagnosis: Diagnosis, device: Device) -> Result:
    """Complete the result `so_far` for memory with errors: addresses, bits, class."""
    wrong, listed = sum(errors.wrong for errors in found), _collect_listed_words(found)
    histogram = [sum(errors.bits[bit] for errors in found) for bit in range(64)]
    names = "; ".join(errors.pattern for errors in found[:PATTERNS_NAMED])
    more = f" and {format_count(len(found) - PATTERNS_NAMED, 'more pattern')}" if len(found) > PATTERNS_NAMED else ""
    first = f"; first: {listed[0]}" if listed else ""
    places = {word.address: word for word in reversed(listed)}
    gpu = device.uuid or device.name
    return msgspec.structs.replace(
        so_far,
        outcome=Outcome.FAIL,
        reason=f"{wrong} wrong {'read' if wrong == 1 else 'reads'} in {names}{more}: {diagnosis.words}{first}",
        locations=tuple(
            Location(gpu=gpu, address=f"{address * WORD_BYTES:#x}", page=f"allocation {word.piece}, {word.page}")
            for address, word in sorted(places.items())[:LOCATIONS]
        )
        or (Location(gpu=gpu),),
        evidence=so_far.evidence
        | {
            "kind": diagnosis.kind.value,
            "pattern": "; ".join(errors.pattern for errors in found),
            "wrong_reads": wrong,
            "wrong_words": len(places),
            "wrong_bits": f"{sum(1 << bit for bit, times in enumerate(histogram) if times):#018x}",
            "bit_histogram": ", ".join(f"{bit}: {times}" for bit, times in enumerate(histogram) if times),
            "errors": " | ".join(map(str, listed[:LISTED])),
        },
    )


def _collect_listed_words(found: Sequence[Errors]) -> list[WrongWord]:
    return [word for errors in found for word in errors.listed]


def _find_aliases(found: Sequence[Errors], patterns: Mapping[str, Pattern], words: int) -> list[tuple[int, int]]:
    """(address, owner's address) of random words found at another address, which cannot be chance."""
    return [
        (word.address, other)
        for errors in found
        if (pattern := patterns[errors.pattern]).kind == HASH and pattern.keep == ALL_BITS
        for word in errors.listed
        if (other := find_address(pattern, word.actual)) < words
    ]


def _describe_aliases(aliases: Sequence[tuple[int, int]]) -> str:
    address, other = (place * WORD_BYTES for place in aliases[0])
    apart = {(one ^ two) * WORD_BYTES for one, two in aliases}
    said = f"address {address:#x} returns the word of {other:#x}"
    if len(apart) == 1 and (flipped := apart.pop()).bit_count() == 1:
        said += f"; they differ in bit {flipped.bit_length() - 1} of the address"
    return said


def _diagnose_stuck_bit(listed: Sequence[WrongWord]) -> Diagnosis | None:
    """One bit of one word that always reads the same value."""
    flipped = {word.expected ^ word.actual for word in listed}
    if len({word.address for word in listed}) != 1 or len(flipped) != 1:
        return None
    mask = flipped.pop()
    values = {bool(word.actual & mask) for word in listed}
    if mask.bit_count() != 1 or len(values) != 1:
        return None
    return Diagnosis(
        MemoryFaultKind.STUCK_BIT, f"bit {mask.bit_length() - 1} of one word is stuck at {int(values.pop())}"
    )
