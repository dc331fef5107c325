"""``python -m preflight.group``: the same as ``python -m preflight group``."""

import sys

from preflight.exits import answering
from preflight.group.command import group

if __name__ == "__main__":
    with answering(), group.make_context("python -m preflight.group", sys.argv[1:]) as context:
        group.invoke(context)
