"""`healthctl token`: manages access. Over the API as an admin, or with ``--store`` directly in the database."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from healthctl.cli.default_group import DefaultListGroup
from healthctl.cli.screen import Screen, output_options
from healthctl.credentials.credential_options import Credentials, credentials_options, find_valid_tokens, token_state
from healthctl.durations import DurationParam
from healthctl.exit_codes import Exit, Failure
from healthctl.rendering.blocks import Cell, Column, Rows, Tone, escape_control_chars, format_timestamp
from remediator.model.credentials import Role, TokenList, TokenView, find_credential_misfit

OUT = click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to this file, readable only by you, instead of standard output.",
)
PEOPLE = {
    "viewer": "Name of a person or program with read access.",
    "operator": "Name of a person or program that may approve, acknowledge and resolve.",
    "admin": "Name of a person who may also manage tokens.",
    "node": "Name of a node; its healthd may report for that node only.",
    "ingest": "Name of a machine that runs 'remediator ingest'.",
}


def _person_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for role, words in reversed(PEOPLE.items()):
        command = click.option(f"--{role}", metavar="NAME", help=words)(command)
    return command


@click.group(
    cls=DefaultListGroup,
    epilog="Examples: healthctl token issue --viewer grafana --out grafana.token; "
    "healthctl token list --store /etc/gpu-healthd/remediator.yaml",
)
def token() -> None:
    """Manage access tokens, over the API as an admin, or with --store directly in the database."""


@token.command("issue", epilog="Example: healthctl token issue --operator ann --out ann.token")
@_person_options
@click.option(
    "--expires",
    type=DurationParam(),
    metavar="SPAN",
    help="Expire after this time, such as 12h or 30d.  [default: never]",
)
@OUT
@credentials_options
def issue_token(credentials: Credentials, expires: float | None, out: Path | None, **names: str | None) -> None:
    """Create a token for a person, a program or a node. It is printed only once; only its digest is stored."""
    role, name = _require_single_name(names)
    _check_token_request(role, name, None, replaces=False)
    _write_token(credentials.issue(role, name, expires, None, replaces=False), out)


@token.command("join", epilog="Example: healthctl token join 'gpu-*' --uses 500 --expires 1d --out join")
@click.argument("pattern")
@click.option(
    "--uses", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="Number of nodes that may use it."
)
@click.option("--replaces", is_flag=True, help="Also replace the tokens of nodes that have one.")
@click.option(
    "--expires", type=DurationParam(), metavar="SPAN", help="Expire after this time, such as 12h or 30d.  [default: 1d]"
)
@OUT
@credentials_options
def issue_join_secret(
    credentials: Credentials, pattern: str, uses: int, expires: float | None, out: Path | None, *, replaces: bool
) -> None:
    """Create a join secret. Nodes whose names match PATTERN (such as 'gpu-*') get their own tokens with it.

    Use it on a node with 'healthctl enroll', or let healthd use it through remediator.enrol_token_file.
    """
    _check_token_request(Role.JOIN, pattern, uses, replaces=replaces)
    _write_token(credentials.issue(Role.JOIN, pattern, expires, uses, replaces=replaces), out)


@token.command("list", epilog="Example: healthctl token list --all")
@click.option("--all", "everything", is_flag=True, help="Include expired and revoked tokens.")
@output_options
@credentials_options
def list_tokens(credentials: Credentials, screen: Screen, *, everything: bool) -> None:
    """List tokens, oldest first. The tokens themselves are not stored."""
    now = time.time()
    found = TokenList(tuple(t for t in credentials.all() if everything or token_state(t, now) == "good"))
    empty = (
        "no tokens; create one with 'healthctl token issue'"
        if everything
        else "no valid token; --all shows expired and revoked ones"
    )
    screen.show(found, lambda: [Rows(found.tokens, _token_columns(now), empty)])


@token.command("rotate", epilog="Example: healthctl token rotate --operator ann --overlap 1d")
@_person_options
@click.option("--overlap", type=DurationParam(zero=True), metavar="SPAN", default="1d", show_default=True,
              help="How long the current tokens stay valid.")  # fmt: skip
@click.option("--expires", type=DurationParam(), metavar="SPAN",
              help="Expire after this time, such as 30d.  [default: as the current tokens]")  # fmt: skip
@OUT
@credentials_options
def rotate_token(
    credentials: Credentials, overlap: float, expires: float | None, out: Path | None, **names: str | None
) -> None:
    """Create a new token for a name. It is printed only once; the current ones expire after the overlap."""
    role, name = _require_single_name(names)
    _write_token(credentials.rotate(role, name, overlap, expires), out)


@token.command("revoke", epilog="Example: healthctl token revoke --viewer grafana")
@click.argument("token_id", metavar="[ID]", required=False)
@_person_options
@credentials_options
def revoke_token(credentials: Credentials, token_id: str | None, **names: str | None) -> None:
    """Revoke one token by its ID (see list), or all tokens of a name. Takes effect at once, also for open connections."""
    if token_id is not None and any(names.values()):
        raise Failure("give an ID or a name, not both", Exit.USAGE)
    if token_id is not None:
        known = [t for t in credentials.all() if t.id == token_id]
        if not known:
            raise Failure(f"no token {token_id}; list them with 'healthctl token list'")
    else:
        known = find_valid_tokens(credentials.all(), *_require_single_name(names, "an ID or "), time.time())
    for each in known:
        credentials.revoke(each.id)
        click.echo(escape_control_chars(f"revoked {each.id}, {each.role.value} {each.name}"))


def _require_single_name(names: dict[str, str | None], else_: str = "") -> tuple[Role, str]:
    given = [(Role(role), name) for role, name in names.items() if name is not None]
    if len(given) != 1:
        raise Failure(f"give {else_}exactly one of {', '.join(f'--{role} NAME' for role in PEOPLE)}", Exit.USAGE)
    return given[0]


def _check_token_request(role: Role, name: str, uses: int | None, *, replaces: bool) -> None:
    if why := find_credential_misfit(role, name, uses, replaces=replaces):
        raise Failure(why, Exit.USAGE)


def _write_token(text: str, out: Path | None) -> None:
    """Write the token, shown only this once, to standard output or to a new file."""
    if out is None:
        click.echo(text)
        return
    try:
        with open(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123 - for its mode
            file.write(f"{text}\n")
    except OSError as error:
        click.echo(text)
        raise Failure(
            f"{out}: cannot be written: {error.strerror}; printing the token to standard output instead"
        ) from None
    click.echo(f"written to {out}", err=True)


def _token_columns(now: float) -> list[Column[TokenView]]:
    return [
        Column("ID", lambda t: t.id),
        Column("ROLE", lambda t: t.role.value),
        Column("NAME", lambda t: t.name),
        Column(
            "STATE", lambda t: Cell(token_state(t, now), Tone.GOOD if token_state(t, now) == "good" else Tone.UNKNOWN)
        ),
        Column(
            "ENDS",
            lambda t: format_timestamp(t.revoked_at or t.expires_at) if t.revoked_at or t.expires_at else "never",
        ),
        Column("USES LEFT", lambda t: "-" if t.uses_left is None else str(t.uses_left)),
        Column("ISSUED", lambda t: format_timestamp(t.issued_at), wide=True),
        Column("ISSUED BY", lambda t: t.issued_by, wide=True),
    ]
