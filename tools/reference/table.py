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
    "cli.md": commands.page,
    "configuration.md": configuration.page,
    "routes.md": routes.page,
    "metrics.md": metrics.page,
    "beacon-layout.md": beacon_layout.page,
    "findings.md": findings.page,
    "xids.md": xids.page,
    "exit-codes.md": exit_codes.page,
}
