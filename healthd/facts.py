"""What a check says about one component: a fact is raised, or an earlier one is cleared."""

from __future__ import annotations

import msgspec

from vocabulary.finding import Evidence, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.wire import Gpu


class Raise(msgspec.Struct, frozen=True, kw_only=True):
    """The fact holds, or happened. An `event` happened (again): repeats are counted, and only proof clears it.

    Otherwise it is a level: saying it again changes nothing, and the check itself clears it. `origin` names the
    evidence, for events; a level gets one from the time at which it was first seen.
    """

    check: str
    code: str
    component: Component
    severity: Severity
    summary: str
    at: float
    event: bool = False
    origin: str = ""
    injected: bool = False
    evidence: Evidence = {}


class Clear(msgspec.Struct, frozen=True, kw_only=True):
    """The level no longer holds; `by` says what showed it."""

    check: str
    code: str
    component: Component
    at: float
    by: str


Fact = Raise | Clear


def gpu_component(gpu: Gpu) -> Component:
    """The component that a GPU is."""
    return Component(ComponentKind.GPU, name=gpu.uuid, pci=gpu.pci, index=gpu.index)
