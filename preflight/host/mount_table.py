"""The file system of a path, and whether it was mounted read-only. Pure; the caller reads the files of `/proc/self`."""

from __future__ import annotations

import re

import msgspec


class Mount(msgspec.Struct, frozen=True):
    """One mounted file system."""

    device: str
    point: str
    kind: str
    options: tuple[str, ...]


def find_mount(path: str, mounts: str) -> Mount | None:
    """The file system that holds the absolute `path`, from the text of ``/proc/self/mounts``; the last mount on a point counts."""
    best: Mount | None = None
    for line in mounts.splitlines():
        words = [_unescape_path(word) for word in line.split(" ")]
        if len(words) < 4:
            continue
        mount = Mount(words[0], words[1], words[2], tuple(words[3].split(",")))
        below = path == mount.point or path.startswith(f"{mount.point.rstrip('/')}/")
        if below and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def is_mounted_read_only(path: str, mountinfo: str) -> bool:
    """Whether the file system of `path` was mounted read-only on purpose, from the text of ``/proc/self/mountinfo``.

    The kernel, on errors, makes the file system read-only and does not change the mount's own options.
    """
    lines = (line.split(" ") for line in mountinfo.splitlines())
    mounts = "\n".join(f"- {words[4]} - {words[5]}" for words in lines if len(words) > 5)
    mount = find_mount(path, mounts)
    return mount is not None and "ro" in mount.options


def _unescape_path(word: str) -> str:
    r"""The kernel writes a space as ``\040``."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), word)
