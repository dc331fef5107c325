"""`healthctl version`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, metadata

import click

from healthctl.output import facts, json_text, output_option
from vocabulary.wire import WIRE_VERSION


@click.command()
@output_option
def version(output: str) -> None:
    """What is installed."""
    try:
        package = metadata("gpu-healthd")["Version"]
    except PackageNotFoundError:  # run from a checkout that was not installed
        package = "not installed"
    found = {"version": package, "wire": WIRE_VERSION, "python": platform.python_version()}
    if output == "json":
        click.echo(json_text(found))
    else:
        click.echo(facts((name, str(value)) for name, value in found.items()))
