"""Options that several commands of the controller share."""

from __future__ import annotations

from pathlib import Path

import click

CONFIG = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default="/etc/gpu-healthd/remediator.yaml",
    show_default=True,
    help="Configuration file (YAML).",
)

INGEST_CONFIG = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default="/etc/gpu-healthd/ingest.yaml",
    show_default=True,
    help="Configuration file (YAML).",
)
