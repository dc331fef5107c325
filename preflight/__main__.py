"""Runs preflight as ``python -m preflight``."""

import sys
from contextlib import suppress

try:
    from preflight.exit_codes import guard_exit_code
    from preflight.main import cli
except Exception as error:  # noqa: BLE001 - what is broken is the installation, and says nothing of the machine
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"preflight: cannot start: {error}; install it: pip install 'gpu-healthd[preflight]'\n")
    sys.exit(3)

with guard_exit_code(), cli.make_context("python -m preflight", sys.argv[1:]) as context:
    cli.invoke(context)
