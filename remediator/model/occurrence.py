"""One thing that happened on a node, for counting: a finding seen (again), a deed of ours, a rule that acted."""

from __future__ import annotations

import msgspec


class Occurrence(msgspec.Struct, frozen=True, omit_defaults=True):
    """`kind` is ``check/code``, ``action/VERB``, ``failed/VERB`` or ``rule/NAME``; `jobs` had ranks on the node then."""

    at: float
    kind: str
    node: str
    component: str = ""
    jobs: tuple[str, ...] = ()
    count: int = 1
