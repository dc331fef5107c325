"""A finding: one typed fact about one component of one node.

A finding is *raised* once, may be *updated* (its count grows, its severity rises) and is *cleared* by evidence, never
by age. Its id is a pure function of its subject and of the first evidence, so that reading the same kernel line again
after a crash yields the same finding, not a second one.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
from collections.abc import Callable
from typing import Any

import msgspec

from vocabulary.identity import Component


class Severity(str, enum.Enum):
    """The component's severity. UNCLASSIFIED is the zero value: hold and alert, never 'fine'."""

    UNCLASSIFIED = "unclassified"
    INFO = "info"  # recorded, nothing to do
    WARNING = "warning"  # works; watch it
    ERROR = "error"  # works, but takes no new work until it is repaired
    FATAL = "fatal"  # does not work

    @property
    def rank(self) -> int:
        """Order for comparisons. Unclassified is between warning and error: not good, not yet verified as bad."""
        return _RANK[self]


_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.UNCLASSIFIED: 2, Severity.ERROR: 3, Severity.FATAL: 4}

Evidence = dict[str, str | int | float | bool]


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fact. Times are UTC seconds; `origin` names the first evidence, e.g. ``<boot id>:<kernel sequence>``."""

    id: str
    node: str
    check: str
    code: str
    component: Component
    severity: Severity
    summary: str
    first_seen: float
    last_seen: float
    origin: str
    boot_id: str = ""
    count: int = 1
    active: bool = True
    cleared_at: float | None = None
    cleared_by: str = ""
    injected: bool = False
    level: bool = False  # its check clears it by a contrary reading; otherwise only a verification does
    evidence: Evidence = {}

    @property
    def kind(self) -> str:
        """``check/code``, as in playbooks and output: ``xid/79``, ``row_remap/pending``."""
        return f"{self.check}/{self.code}"

    def seen_again(self, at: float, count: int = 1) -> Finding:
        """Return the same fact, seen once more."""
        return msgspec.structs.replace(self, last_seen=max(at, self.last_seen), count=self.count + count)

    def cleared(self, at: float, by: str) -> Finding:
        """Return the cleared fact, with the evidence."""
        return msgspec.structs.replace(self, active=False, cleared_at=at, cleared_by=by)


def _load_sha256() -> Callable[[bytes], Any]:
    """Load Python's own SHA-256. The one of `hashlib` loads OpenSSL, which costs the node daemon 3.5 MiB."""
    for name in ("_sha2", "_sha256"):  # from Python 3.12 on, and before
        with contextlib.suppress(ImportError):
            built_in: Callable[[bytes], Any] = importlib.import_module(name).sha256
            return built_in
    return importlib.import_module("hashlib").sha256  # type: ignore[no-any-return]  # a build without its own


_sha256 = _load_sha256()


def finding_id(node: str, check: str, code: str, component: Component, origin: str) -> str:
    """Return the id of the finding that `origin` raised: 20 hex digits, the same on every reading."""
    text = f"{node}\x1f{check}\x1f{code}\x1f{component.key}\x1f{origin}"
    digest: str = _sha256(text.encode()).hexdigest()
    return digest[:20]
