"""Verified digests, one per product, number of SMs and library version. Unknown platforms have none.

A file, not an average: which bits come out depends on all of them, so a MIG slice or a new library has none to be
compared with until somebody has recorded some from devices that agree. `goldens.json` begins empty; a site's own are beside it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from vocabulary.atomic_file import replace_file

FILE = Path(__file__).with_name("goldens.json")
SITE_FILE = Path("/var/lib/gpu-healthd/preflight/goldens.json")
SITE_VARIABLE = "HEALTHD_PREFLIGHT_GOLDENS"  # overrides the location
AGREES, DIFFERS, UNKNOWN = "agrees", "differs", "unknown"
Goldens = dict[str, dict[str, str]]


def format_platform_name(product: str, architecture: str, units: str, libraries: Mapping[str, str]) -> str:
    """What a digest depends on beside the work itself; `units` are how many compute, in words."""
    versions = "".join(f", {name} {version}" for name, version in sorted(libraries.items()))
    return f"{product}, {architecture}, {units}{versions}"


def read_goldens(path: Path = FILE) -> Goldens:
    """Read the file: platform to work to digest. Raises ValueError if it is invalid."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path}: cannot read the golden digests ({error}); restore the file, or start with {{}}"
        ) from None
    shaped = isinstance(found, dict) and all(
        isinstance(works, dict) and all(isinstance(digest, str) for digest in works.values())
        for works in found.values()
    )
    if not shaped:
        raise ValueError(f"{path}: the file must be an object of platforms, each an object of work to digest")
    return {str(name): dict(works) for name, works in found.items()}


def resolve_site_file() -> Path:
    """The path of this site's own golden digests."""
    return Path(os.environ.get(SITE_VARIABLE) or SITE_FILE)


def load_all_goldens() -> tuple[Goldens, str]:
    """The shipped digests and the site's own, which take precedence; and errors as text."""
    known, site = read_goldens(), resolve_site_file()
    if not site.exists():
        return known, ""
    try:
        own = read_goldens(site)
    except ValueError as error:
        return known, str(error)
    return {on: {**known.get(on, {}), **own.get(on, {})} for on in (*known, *own)}, ""


def compare_with_goldens(goldens: Goldens, on: str, work: str, digest: str) -> str:
    """`agrees`, `differs`, or `unknown` without a stored digest."""
    known = goldens.get(on, {}).get(work)
    if known is None:
        return UNKNOWN
    return AGREES if known == digest else DIFFERS


def write_goldens(path: Path, goldens: Goldens) -> None:
    """Replace the file atomically. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, f"{json.dumps(goldens, indent=1, sort_keys=True)}\n".encode(), sync_content=True)
