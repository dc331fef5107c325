"""One event on a node, for counting: a finding seen (again), an action of ours, a rule that acted."""

from __future__ import annotations

import msgspec


class Occurrence(msgspec.Struct, frozen=True, omit_defaults=True):
    """`kind` is ``check/code``, ``action/VERB``, ``failed/VERB`` or ``rule/NAME``; `jobs` had ranks on the node then."""

    at: float
    kind: str
    node: str
    component: str = ""
    jobs: tuple[str, ...] = ()
    job_nodes: int = 0  # nodes of the widest of these jobs
    count: int = 1
    incident: str = ""  # of the action or the rule; findings have none
    injected: bool = False
