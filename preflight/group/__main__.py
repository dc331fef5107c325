"""Runs `preflight group` as ``python -m preflight.group``."""

import sys

from preflight.exit_codes import guard_exit_code
from preflight.group.group_command import group

if __name__ == "__main__":
    with guard_exit_code(), group.make_context("python -m preflight.group", sys.argv[1:]) as context:
        group.invoke(context)
