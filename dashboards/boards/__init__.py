"""One file a dashboard: which panels, which questions. How a panel looks is said in `dashboards.panels`, once."""

from __future__ import annotations

from dashboards.boards import capacity, fabric, fleet, gpu, job, node, preflight, remediation

BOARDS = (
    fleet.BOARD,
    node.BOARD,
    gpu.BOARD,
    fabric.BOARD,
    job.BOARD,
    remediation.BOARD,
    preflight.BOARD,
    capacity.BOARD,
)
