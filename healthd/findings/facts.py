"""A check's statement about one component: a fact is raised, or an earlier one is cleared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from vocabulary.finding import Evidence, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import Gpu
from vocabulary.text.surrogate_escapes import escape_surrogates


class Moment(NamedTuple):
    """One instant on both clocks: `wall` (UTC seconds) goes into findings, `monotonic` measures durations."""

    wall: float
    monotonic: float


class Raise(msgspec.Struct, frozen=True, kw_only=True):
    """The fact holds, or happened. An `event` happened (again): repeats are counted, and only a verification clears it.

    Otherwise it is a level: repeating it changes nothing, and the check itself clears it; if `provable`, a verification
    does so too. Levels are warnings or worse. An event that `outweighs` replaces the text of the known one, until it is
    cleared. `origin` names the evidence, for events; a level gets one from the time at which it was first seen.
    """

    check: str
    code: str
    component: Component
    severity: Severity
    summary: str
    at: float
    event: bool = False
    provable: bool = False
    outweighs: bool = False
    origin: str = ""
    injected: bool = False
    evidence: Evidence = {}


class Clear(msgspec.Struct, frozen=True, kw_only=True):
    """The level no longer holds; `by` names the evidence."""

    check: str
    code: str
    component: Component
    at: float
    by: str


class Unknown(msgspec.Struct, frozen=True):
    """Whether this level holds is unknown now: it stays as it was."""

    check: str
    code: str
    component: Component


Fact = Raise | Clear
LevelFact = Raise | Unknown
_AnyFact = TypeVar("_AnyFact", bound=Raise | Clear | Unknown)
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def make_writable(fact: _AnyFact) -> _AnyFact:
    """Return the fact with all text encodable as UTF-8.

    A text may quote a user-chosen name, such as a file's, which may hold any bytes.
    """
    if not isinstance(fact, Raise):  # a sweep brings dozens of these: skip checking every field
        words = fact.by if isinstance(fact, Clear) else ""
        if fact.component.name.isascii() and words.isascii():
            return fact
    return _escape_struct_fields(fact)


def _escape_struct_fields(struct: _Struct) -> _Struct:
    before = {field: getattr(struct, field) for field in struct.__struct_fields__}
    changes = {field: new for field, value in before.items() if (new := _escape_value(value)) is not value}
    return msgspec.structs.replace(struct, **changes) if changes else struct


def _escape_value(value: Any) -> Any:
    if type(value) is str:
        return escape_surrogates(value)
    if isinstance(value, Component):
        return _escape_struct_fields(value)
    if isinstance(value, dict) and value:
        return {_escape_value(key): _escape_value(each) for key, each in value.items()}
    return value


def judge_level(
    holds: bool | None,  # noqa: FBT001 - the answer itself
    now: Moment,
    kind: tuple[str, str],
    component: Component,
    summary: str,
    *,
    severity: Severity = Severity.WARNING,
    evidence: Mapping[str, str | float | bool | None] | None = None,
) -> list[LevelFact]:
    """Return the fact for a level that holds, does not hold, or is unknown. Nearly all do not hold.

    `kind` is check and code. Unknown values are left out of the evidence.
    """
    check, code = kind
    if holds is None:
        return [Unknown(check, code, component)]
    if not holds:
        return []
    known = {name: value for name, value in (evidence or {}).items() if value is not None}
    return [
        Raise(
            check=check, code=code, component=component, severity=severity, summary=summary, at=now.wall, evidence=known
        )
    ]


def make_gpu_component(gpu: Gpu) -> Component:
    """Return a GPU's component."""
    return Component(ComponentKind.GPU, name=gpu.uuid, pci=gpu.pci, index=gpu.index)


def make_check_failure(name: str, error: Exception, at: float) -> Raise:
    """Return the finding for a check that raised an exception, a bug in healthd: what it judges is unknown."""
    return Raise(
        check="check",
        code="failed",
        component=Component(ComponentKind.AGENT, name=name),
        severity=Severity.WARNING,
        summary=f"the {name} check failed; please report this: {error!r}"[:300],
        at=at,
    )
