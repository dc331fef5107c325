"""The expected word at an address, as a pure function in plain integers: the reference for the kernels.

The kernels in `pattern_kernels` compute the same on the device, so that no expected data is stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

ALL_BITS = (1 << 64) - 1
ADDRESS, WALKING, CONSTANT, HASH, CHECKER, MODULO, STRIDE, SPLITMIX = range(8)
UP, DOWN, SCATTERED = "up", "down", "scattered"
MODULUS = 20
EVEN_BITS = 0x5555_5555_5555_5555
GOLDEN = 0x9E37_79B9_7F4A_7C15
MIX_1 = 0xBF58_476D_1CE4_E5B9
MIX_2 = 0x94D0_49BB_1331_11EB
# Of odd numbers without four equal bits in a row (so that neighbouring words differ in all places), one whose random
# words stay 2^47 addresses apart when up to three bits flip: such an error never looks like the word of another address.
HASH_FACTOR = 0xBAE5_929A_3B1C_ECD5
_HASH_INVERSE = pow(HASH_FACTOR, -1, 1 << 64)


class Pattern(NamedTuple):
    """One pattern: a `kind` of raw word, then ``raw & keep ^ flip``.

    `seed`, 64 random bits, chooses among random words; it is the word of a constant, the phase of walking bits, the remainder that stands
    out; `shift` is the two's logarithm of a stride in words; `order` is the one in which blocks are visited.
    """

    name: str
    kind: int
    seed: int = 0
    shift: int = 0
    keep: int = ALL_BITS
    flip: int = 0
    order: str = UP

    def inverted(self, order: str | None = None) -> Pattern:
        """The complement: every cell holds the other value."""
        return self._replace(name=f"{self.name}, inverted", flip=self.flip ^ ALL_BITS, order=order or self.order)


def splitmix(state: int) -> int:
    """The finaliser of splitmix64: neighbours differ in about half of their bits."""
    state = (state ^ state >> 30) * MIX_1 & ALL_BITS
    state = (state ^ state >> 27) * MIX_2 & ALL_BITS
    return state ^ state >> 31


def compute_expected_word(pattern: Pattern, address: int) -> int:
    """The word, 0 to 2^64 - 1, that `pattern` puts at the address `address` (in words)."""
    return (_compute_raw_word(pattern, address) & pattern.keep) ^ pattern.flip


def _compute_raw_word(pattern: Pattern, address: int) -> int:
    kind, seed = pattern.kind, pattern.seed
    if kind == ADDRESS:
        return address * 8 & ALL_BITS
    if kind == WALKING:
        return 1 << (address + seed) % 64
    if kind == CONSTANT:
        return seed
    if kind == HASH:
        return _fold((seed + address * HASH_FACTOR) & ALL_BITS)
    if kind == CHECKER:
        return EVEN_BITS if address % 2 == 0 else EVEN_BITS << 1
    if kind == MODULO:
        return ALL_BITS if address % MODULUS == seed else 0
    if kind == STRIDE:
        return ALL_BITS if address >> pattern.shift & 1 else 0
    if kind == SPLITMIX:
        return splitmix((seed + (address + 1) * GOLDEN) & ALL_BITS)
    raise ValueError(f"unknown kind of pattern {kind}: ADDRESS to SPLITMIX are 0 to 7")


def _fold(state: int) -> int:
    """The upper half into the lower, which else would repeat every 2^k words in bit k. Its own inverse."""
    return state ^ state >> 32


def find_address(pattern: Pattern, word: int) -> int:
    """The address to which a word of a HASH pattern belongs, so that a misplaced word reveals its source."""
    if pattern.kind != HASH or pattern.keep != ALL_BITS:
        raise ValueError(f"the words of {pattern.name} do not encode their address; only whole random words do")
    return (_fold(word ^ pattern.flip) - pattern.seed) * _HASH_INVERSE & ALL_BITS


def sum_address_pattern(pattern: Pattern, first: int, words: int) -> int:
    """The sum, modulo 2^64, of the words of an ADDRESS pattern from the address `first`: known without adding them."""
    if pattern.kind != ADDRESS or pattern.keep != ALL_BITS:
        raise ValueError(f"the sum of {pattern.name} must be added up; only that of addresses has a formula")
    summed = 0
    for bit in range(64):
        ones = _count_set_bits(bit - 3, first + words) - _count_set_bits(bit - 3, first) if bit >= 3 else 0
        summed += (words - ones if pattern.flip >> bit & 1 else ones) << bit
    return summed & ALL_BITS


def _count_set_bits(bit: int, limit: int) -> int:
    """How many of the numbers below `limit` have this bit."""
    whole, rest = limit >> bit + 1 << bit, limit & (2 << bit) - 1
    return whole + max(rest - (1 << bit), 0)


def choose_program_stride(order: str, blocks: int) -> int:
    """The s with which ``program * s % blocks`` visits each of `blocks` once, in `order`."""
    if blocks <= 1 or order == UP:
        return 1
    if order == DOWN:
        return blocks - 1
    wanted = int(blocks * 0.6180339887)  # the golden section: neighbours in time are strangers in place
    return next(s for s in range(max(wanted, 1), 2 * blocks + 2) if math.gcd(s, blocks) == 1)


def place_programs(order: str, blocks: int) -> tuple[int, int]:
    """The block of program 0, and the step to the next program's: modulo `blocks` if they are scattered."""
    if order == SCATTERED:
        return 0, choose_program_stride(order, blocks)
    return (blocks - 1, -1) if order == DOWN else (0, 1)


def reseed_patterns(patterns: Sequence[Pattern], number: int) -> tuple[Pattern, ...]:
    """The same patterns with other random words in each round `number`, to provoke different faults."""
    return tuple(
        one._replace(seed=one.seed ^ splitmix(number * GOLDEN & ALL_BITS)) if one.kind == HASH else one
        for one in patterns
    )


_ONES = Pattern("zeros", CONSTANT)
_BYTES = Pattern("a5", CONSTANT, seed=0xA5A5_A5A5_A5A5_A5A5)
_WALKING = Pattern("walking ones", WALKING)
_CHECKER = Pattern("checkerboard", CHECKER)
_ADDRESS = Pattern("address", ADDRESS)
_RANDOM = Pattern("random", HASH, seed=splitmix(1))
_MODULO = Pattern("modulo 20", MODULO, seed=7)

# Together they set each bit to 0 and 1, make neighbouring words differ, and distinguish all addresses.
GATE = (_ADDRESS, _RANDOM, _RANDOM.inverted(DOWN), _WALKING)

# Each is followed by its complement in the other order: a moving inversion.
FULL = (
    *(each for one in (_ADDRESS, _ONES, _BYTES, _WALKING, _CHECKER, _MODULO) for each in (one, one.inverted(DOWN))),
    # The mapping of addresses to rows, banks and stacks is not published; these are strides of virtual addresses.
    *(Pattern(f"stride {8 << shift} B", STRIDE, shift=shift) for shift in (2, 7, 9, 13, 18)),
    *(each for one in (_RANDOM, _RANDOM._replace(name="random 2", seed=splitmix(2))) for each in (one, one.inverted())),
    Pattern("random, scattered rows", HASH, seed=splitmix(3), order=SCATTERED),
)
