"""``python -m preflight.group``: the same as ``python -m preflight group``."""

from preflight.group.command import group

if __name__ == "__main__":
    group(prog_name="python -m preflight.group")
