"""Reads the lock files, and the table of licences beside them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / "requirements"
SHIPPED = ("node", "centre", "preflight")  # installed at a site; the other locks only build and test
_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?: ; ([^\\\n]+?))? ?\\?$")
_DIGEST = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_LICENCE = re.compile(r"^(\S+): +([^#]+?)(?: +# (.+))?$")


class LockError(ValueError):
    """An invalid lock file or table of licences."""


class Package(NamedTuple):
    """One version of one package, its platforms (empty: all), and the digests of its files."""

    name: str
    version: str
    marker: str
    digests: tuple[str, ...]


class Licence(NamedTuple):
    """An SPDX expression; `why` we accept it, if it is not permissive."""

    expression: str
    why: str


def read_locked_packages(lock: str) -> list[Package]:
    """All of ``requirements/LOCK.lock``, in its order.

    Raises:
        LockError: a package without a digest: pip would take any file of that name.
    """
    found: list[Package] = []
    for entry in re.split(r"\n(?=[A-Za-z0-9])", (FOLDER / f"{lock}.lock").read_text()):
        head = _ENTRY.match(entry.partition("\n")[0])
        if head is None:
            continue  # the comment at the top
        digests = tuple(_DIGEST.findall(entry))
        if not digests:
            raise LockError(f"requirements/{lock}.lock: {head[1]} has no digest; make it again with 'make lock'")
        found.append(Package(head[1], head[2], head[3] or "", digests))
    if not found:
        raise LockError(f"requirements/{lock}.lock: holds no package")
    return found


def read_licences() -> dict[str, Licence]:
    """The table ``requirements/licences.txt``, by package.

    Raises:
        LockError: a line of it is wrong.
    """
    found: dict[str, Licence] = {}
    for number, line in enumerate((FOLDER / "licences.txt").read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        row = _LICENCE.match(line)
        if row is None or row[1] in found:
            raise LockError(f"requirements/licences.txt:{number}: write 'PACKAGE: SPDX-EXPRESSION', each package once")
        found[row[1]] = Licence(row[2], row[3] or "")
    return found
