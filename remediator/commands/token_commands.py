"""`remediator token`: credentials, on the machine with the database. Every change is audited with its author."""

from __future__ import annotations

import contextlib
import getpass
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from sqlalchemy.exc import SQLAlchemyError

from remediator.commands.shared_options import CONFIG
from remediator.config import ConfigError, load_config
from remediator.model.credentials import Role, TokenView, find_credential_misfit
from remediator.store.database import driver_message
from remediator.store.journal import Journal, StoreError
from remediator.store.token_store import Tokens

_SPAN = re.compile(r"(\d{1,6})([smhd])")
SPAN_MAX_S = 100 * 365 * 86400.0
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@click.group("token")
def token_group() -> None:
    """Credentials of nodes and people."""


def _add_role_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option, words in (
        ("--admin", "Issue a token for an operator who also manages tokens."),
        ("--operator", "Issue a token for an operator, or a program, that approves, acknowledges and resolves."),
        ("--viewer", "Issue a read-only token for a user or a program."),
        ("--node", "Issue a token for this node's healthd, valid for that node only."),
        ("--ingest", "Issue a token for 'remediator ingest', which delivers the messages of all nodes."),
    ):
        command = click.option(option, metavar="NAME", help=words)(command)
    return command


@token_group.command("issue")
@CONFIG
@_add_role_options
@click.option(
    "--join",
    metavar="PATTERN",
    help="Issue a join secret. Nodes with matching names exchange it for a token of their own.",
)
@click.option(
    "--uses", type=click.IntRange(1, 1_000_000), help="Number of nodes that may use a join secret.  [default: 1]"
)
@click.option("--replaces", is_flag=True, help="Let the join secret replace the token of a node that already has one.")
@click.option(
    "--expires", metavar="SPAN", help="Lifetime, such as 12h or 30d.  [default: unlimited; a join secret: 1d]"
)
def issue_command(
    config_path: Path, join: str | None, uses: int | None, *, replaces: bool, expires: str | None, **names: str | None
) -> None:
    """Print a new token once; only its digest is stored."""
    role, name = _single_role(names | {"join": join})
    many = uses or 1 if role is Role.JOIN else uses
    if why := find_credential_misfit(role, name, many, replaces=replaces):
        raise click.UsageError(why)
    span_s = _parse_span_seconds(expires)
    with _open_token_store(config_path) as tokens:
        now = time.time()
        until = None if span_s is None else now + span_s
        click.echo(tokens.issue(role, name, now, actor=_local_actor(), expires_at=until, uses=many, replaces=replaces))


@token_group.command("list")
@CONFIG
@click.option("--all", "everything", is_flag=True, help="Also show expired and revoked tokens.")
def list_command(config_path: Path, *, everything: bool) -> None:
    """Show what tokens there are, never their text."""
    with _open_token_store(config_path) as tokens:
        now = time.time()
        for token in tokens.all():
            state = _token_state(token, now)
            if everything or state not in {"revoked", "ended", "used up"}:
                click.echo(f"{token.id}  {token.role.value:<8}  {token.name:<24}  {state}")


@token_group.command("rotate")
@CONFIG
@_add_role_options
@click.option("--overlap", metavar="SPAN", default="1d", show_default=True, help="How long the old tokens stay valid.")
@click.option(
    "--expires", metavar="SPAN", help="Lifetime of the new token, such as 30d.  [default: that of the old tokens]"
)
def rotate_command(config_path: Path, overlap: str, expires: str | None, **names: str | None) -> None:
    """Print a new token for a name; its old tokens end after the overlap."""
    role, name = _single_role(names)
    overlap_s, span_s = _parse_span_seconds(overlap, least=0.0) or 0.0, _parse_span_seconds(expires)
    with _open_token_store(config_path) as tokens:
        now = time.time()
        until = None if span_s is None else now + span_s
        try:
            click.echo(tokens.rotate(role, name, now, overlap_s, actor=_local_actor(), expires_at=until))
        except LookupError as error:
            raise click.ClickException(str(error.args[0])) from error


@token_group.command("revoke")
@CONFIG
@_add_role_options
@click.argument("token_id", metavar="[ID]", required=False)
def revoke_command(config_path: Path, token_id: str | None, **names: str | None) -> None:
    """End one token by its ID (see list), or all of a name. A running remediator knows within half a second."""
    if token_id is not None and any(names.values()):
        raise click.UsageError("give an ID or a name, not both")
    with _open_token_store(config_path) as tokens:
        if token_id is not None:
            gone = tokens.revoke(time.time(), actor=_local_actor(), token_id=token_id)
        else:
            role, name = _single_role(names, "an ID or ")
            gone = tokens.revoke(time.time(), actor=_local_actor(), role=role, name=name)
    if not gone:
        raise click.ClickException("no such token; see 'remediator token list'")
    for token in gone:
        click.echo(f"revoked {token.id}, {token.role.value} {token.name}", err=True)


def _single_role(names: dict[str, str | None], else_: str = "") -> tuple[Role, str]:
    given = [(Role(role), name) for role, name in names.items() if name is not None]
    if len(given) != 1:
        raise click.UsageError(f"give {else_}exactly one of {', '.join(f'--{role}' for role in names)}")
    return given[0]


@contextlib.contextmanager
def _open_token_store(config_path: Path) -> Iterator[Tokens]:
    try:
        with contextlib.closing(Journal(load_config(config_path).database)) as journal:
            journal.prepare()
            yield Tokens(journal.engine)
    except (ConfigError, StoreError, SQLAlchemyError) as error:
        raise click.ClickException(driver_message(error)) from error


def _token_state(token: TokenView, now: float) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.uses_left == 0:
        return "used up"
    if token.expires_at is None:
        return "valid"
    if token.expires_at <= now:
        return "ended"
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(token.expires_at))
    return f"valid until {until}" + (f", {token.uses_left} uses" if token.uses_left is not None else "")


def _parse_span_seconds(span: str | None, least: float = 1.0) -> float | None:
    if span is None:
        return None
    match = _SPAN.fullmatch(span)
    if match is None:
        raise click.UsageError(f"{span!r} is not a duration; write 90s, 30m, 12h or 30d")
    if not least <= (found := int(match[1]) * _UNIT_S[match[2]]) <= SPAN_MAX_S:
        raise click.UsageError(f"{span!r}: give {least:g}s to {SPAN_MAX_S / _UNIT_S['d']:g}d")
    return found


def _local_actor() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        user = "unknown"
    return f"{user} (on {socket.gethostname()})"
