"""The real lemon detector on the simulated history; its advice becomes a finding, as on the controller."""

from __future__ import annotations

from functools import partial

import numpy as np

from remediator.detection.lemons import Advice, History, Kind, judge_lemons
from remediator.simulation.failure_causes import LEMON
from remediator.simulation.simulated_controller import EPOCH_S, SimulatedController
from remediator.simulation.simulated_world import SimulatedWorld

Row = tuple[int, float, float, Kind, int, int, int, float]
_OUT = {Advice.REPAIR, Advice.REPLACE}


class LemonSuspicion:
    """Judges all nodes at intervals, by the history so far."""

    def __init__(self, world: SimulatedWorld, controller: SimulatedController) -> None:
        self._world, self._controller = world, controller
        self._jobs: dict[str, int] = {}

    def begin(self) -> None:
        """Schedule the first judgement."""
        self._world.agenda.after(self._world.p.lemons_every_h * 3600, self._judge)

    def _judge(self) -> None:
        rows = self._rows()
        if rows:
            size = len(self._world.nodes)
            judged = judge_lemons(_build_fleet_record(size, rows), EPOCH_S + self._world.agenda.now, fleet_nodes=size)
            for number in np.flatnonzero([advice in _OUT for advice in judged.advice]).tolist():
                node = self._world.nodes[number]
                known = any(finding.check == LEMON.check for finding in self._controller.state.active_on(node.name))
                if node.in_service and not known:
                    self._world.agenda.after(0.0, partial(self._controller.found, node, LEMON))
        self.begin()

    def _rows(self) -> list[Row]:
        nan = float("nan")
        rows: list[Row] = []
        for at, node, job, size, user in self._world.failures:
            number = self._jobs.setdefault(job, len(self._jobs))
            rows.append((node.index, at, nan, Kind.FAILURE, number, user, -1, float(size)))
        for node, since, until in self._controller.removed:
            rows.append((node.index, since, nan if until is None else until, Kind.REMOVED, -1, -1, -1, nan))
        rows += [(node.index, at, nan, Kind.TEST_FAILED, -1, -1, -1, nan) for node, at in self._controller.tests_failed]
        rows += [(node.index, at, at, Kind.REPAIRED, -1, -1, -1, nan) for node, at in self._controller.repaired]
        for node, cause, at in self._controller.seen:
            if cause.check == "xid":
                rows.append((node.index, at, nan, Kind.XID, -1, -1, int(cause.code), nan))
        return rows


def _build_fleet_record(nodes: int, rows: list[Row]) -> History:
    node, time, end, kind, job, user, code, size = (np.array(column) for column in zip(*rows, strict=True))
    return History(
        nodes=nodes,
        node=node.astype(np.int64),
        time=EPOCH_S + time,
        end=EPOCH_S + end,
        kind=kind.astype(np.int64),
        job=job.astype(np.int64),
        user=user.astype(np.int64),
        code=code.astype(np.int64),
        size=size.astype(np.float64),
        named=np.ones(node.size, dtype=np.bool_),
        cohorts={},
    )
