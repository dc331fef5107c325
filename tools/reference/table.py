"""The list of generated pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tools.reference import (
    beacon_layout,
    commands,
    configuration,
    exit_codes,
    findings,
    metrics,
    routes,
    xids,
)

PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": commands.render_commands_page,
    "configuration.md": configuration.render_configuration_page,
    "routes.md": routes.render_routes_page,
    "metrics.md": metrics.render_metrics_page,
    "beacon-layout.md": beacon_layout.render_beacon_layout_page,
    "findings.md": findings.render_findings_page,
    "xids.md": xids.render_xids_page,
    "exit-codes.md": exit_codes.render_exit_codes_page,
}
