"""The dashboards, one module each: panels and queries. `dashboards.panels` defines their appearance."""

from __future__ import annotations

from dashboards.boards import (
    capacity_dashboard,
    fabric_dashboard,
    fleet_dashboard,
    gpu_dashboard,
    job_dashboard,
    node_dashboard,
    preflight_dashboard,
    remediation_dashboard,
)

BOARDS = (
    fleet_dashboard.BOARD,
    node_dashboard.BOARD,
    gpu_dashboard.BOARD,
    fabric_dashboard.BOARD,
    job_dashboard.BOARD,
    remediation_dashboard.BOARD,
    preflight_dashboard.BOARD,
    capacity_dashboard.BOARD,
)
