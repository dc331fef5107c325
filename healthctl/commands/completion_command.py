"""`healthctl completion`: what a shell needs to complete commands, options, and names that the server knows."""

from __future__ import annotations

import os
from pathlib import PurePath

import click
from click.shell_completion import get_completion_class

from healthctl.exit_codes import Exit, Failure

SHELLS = ("bash", "zsh", "fish")
# Fish takes "type,name<tab>meaning" apart at each comma, and a meaning would end at its first.
_WHOLE_SENTENCES = ('string split ","', 'string split --max 1 ","')


@click.command(
    epilog="Examples: source <(healthctl completion bash); healthctl completion fish > ~/.config/fish/completions/healthctl.fish"
)
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the completion script for SHELL (default: the one in $SHELL).

    Names of nodes and incidents are completed from the server of HEALTHCTL_SERVER, if it answers at once.
    """
    name = shell or PurePath(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise Failure(f"$SHELL names none of {', '.join(SHELLS)}; say which: healthctl completion bash", Exit.USAGE)
    kind = get_completion_class(name)
    assert kind is not None  # noqa: S101 - click has these three
    script = kind(ctx.find_root().command, {}, "healthctl", "_HEALTHCTL_COMPLETE").source()
    click.echo(script.replace(*_WHOLE_SENTENCES))
