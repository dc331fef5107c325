"""Slurm's host lists."""

from __future__ import annotations

from tests.fuzz.target import Target, text
from vocabulary.text.slurm_hostlist import NAMES_MAX, expand_hostlist

LOOK_AT = 100


def judge(data: bytes) -> None:
    """Always ends, with no empty name and no more than the bound; names without brackets stay as they are."""
    written = text(data)
    for count, name in enumerate(expand_hostlist(written)):
        if not name or count > NAMES_MAX:
            raise AssertionError("an empty name, or too many")
        if count > LOOK_AT:
            break
    if (
        "[" not in written
        and "]" not in written
        and list(expand_hostlist(written)) != [*filter(None, written.split(","))]
    ):
        raise AssertionError("a plain list changes")


TARGET = Target(
    judge,
    (
        b"login,gpu[08-10],r[1-2]n[1,3]",
        b"gpu[001-032]",
        b"a[1-99999999][1-99999999]",
        b"[,]" * 32,  # 2^32 empty names: it went on for hours
        b"[1-100000]" * 32,
        b"[1-100000]" * 8 + b"[1-0]",  # names that never came to be: the same
    ),
    bytes_max=96,
)
