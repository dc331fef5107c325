"""``python -m preflight``."""

from preflight.main import cli

cli(prog_name="python -m preflight")
