"""`healthctl version`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, metadata

import click

from healthctl.cli.screen import Screen, output_options
from healthctl.rendering.blocks import Facts
from vocabulary.messages.wire import WIRE_VERSION


@click.command(epilog="Example: healthctl version -o json")
@output_options
def version(screen: Screen) -> None:
    """Show the versions of the package, its messages and Python."""
    try:
        package = metadata("gpu-healthd")["Version"]
    except PackageNotFoundError:  # run from a checkout that was not installed
        package = "not installed"
    found = {"version": package, "wire": WIRE_VERSION, "python": platform.python_version()}
    screen.show(found, lambda: [Facts([(name, str(value)) for name, value in found.items()])])
