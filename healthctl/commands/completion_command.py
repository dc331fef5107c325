"""`healthctl completion`: shell scripts that complete commands, options, and names from the server."""

from __future__ import annotations

import os
from pathlib import PurePath

import click
from click.shell_completion import get_completion_class

from healthctl.exit_codes import Exit, Failure

SHELLS = ("bash", "zsh", "fish")
# Fish splits "type,name<tab>meaning" at each comma, which would cut the meaning at its first comma.
_WHOLE_SENTENCES = ('string split ","', 'string split --max 1 ","')


@click.command(
    epilog="Examples: source <(healthctl completion bash); healthctl completion fish > ~/.config/fish/completions/healthctl.fish"
)
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the completion script for SHELL (default: the shell in $SHELL).

    Node and incident names are completed from the server in HEALTHCTL_SERVER if it responds at once.
    """
    name = shell or PurePath(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise Failure(
            f"$SHELL is not one of {', '.join(SHELLS)}; name the shell: healthctl completion bash", Exit.USAGE
        )
    kind = get_completion_class(name)
    assert kind is not None  # noqa: S101 - click has these three
    script = kind(ctx.find_root().command, {}, "healthctl", "_HEALTHCTL_COMPLETE").source()
    click.echo(script.replace(*_WHOLE_SENTENCES))
