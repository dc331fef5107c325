"""Options shared by several commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from vocabulary.daemon_socket import SOCKET

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format: text for people, json for programs.",
)


def socket_option_with(
    callback: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--socket``, passed to the command as its argument ``path``; `callback` may change the value."""
    return click.option(
        "--socket",
        "path",
        envvar="HEALTHD_SOCKET",
        default=SOCKET,
        show_default=True,
        show_envvar=True,
        callback=callback,
        help="UNIX socket of healthd; may contain {node}.",
    )


socket_option = socket_option_with()
