"""Options that several commands share."""

from __future__ import annotations

import click

from preflight.telling import SOCKET

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="For people, or programs.",
)
socket_option = click.option(
    "--socket",
    "path",
    envvar="HEALTHD_SOCKET",
    default=SOCKET,
    show_default=True,
    show_envvar=True,
    help="healthd's UNIX socket; may hold {node}.",
)
