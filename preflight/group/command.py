"""The command line of the group: ``python -m preflight group``, one process on each node."""

from __future__ import annotations

import importlib
import os
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from preflight.group.faults import FORMS, FaultError, parse
from preflight.group.launchers.found import find
from preflight.group.launchers.place import LauncherError, Place
from preflight.group.own import gate
from preflight.group.page import page
from preflight.results import Verdict
from preflight.telling import SOCKET, TellingError, tell
from vocabulary.clock import SystemClock

Seconds = click.FloatRange(0.5, 86_400)


@click.command()
@click.option(
    "--rounds", default=4, show_default=True, type=click.IntRange(1, 64), help="Rounds of pairs, before any to confirm."
)
@click.option(
    "--arrive-seconds", default=120.0, show_default=True, type=Seconds, help="How long to wait for all nodes."
)
@click.option(
    "--pair-seconds", default=30.0, show_default=True, type=Seconds, help="How long one pair may take on one rail."
)
@click.option("--expect", type=click.FloatRange(min=0, min_open=True), metavar="GB/S", help="What a healthy pair reaches per direction.")  # fmt: skip
@click.option("--backend", type=click.Choice(["auto", "gloo", "nccl"]), default="auto", show_default=True, help="auto: NCCL on GPUs, else TCP.")  # fmt: skip
@click.option(
    "--interfaces", default="", metavar="NAMES", help="Over TCP: network interfaces, each a rail; with commas."
)
@click.option("--own-test", default="", metavar="COMMAND", help="Prints a preflight's document; left out: the gate of this node.")  # fmt: skip
@click.option("--no-own-test", is_flag=True, help="Only pairs: every node was tested just now.")
@click.option(
    "--own-seconds", default=120.0, show_default=True, type=Seconds, help="How long a node's own test may take."
)
@click.option("--inject", multiple=True, metavar="FAULT", help=f"Commit a fault, to see that it is named: {FORMS}.")
@click.option("--exclude-file", type=click.Path(path_type=Path), metavar="FILE", help="Rank 0 writes the nodes to leave out there, with commas.")  # fmt: skip
@click.option("--tell", "telling", is_flag=True, help="A culprit tells its own healthd; by root.")
@click.option("--socket", "path", default=SOCKET, show_default=True, help="healthd's UNIX socket; may hold {node}.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def group(  # noqa: PLR0913 - one for each option
    *,
    rounds: int,
    arrive_seconds: float,
    pair_seconds: float,
    expect: float | None,
    backend: str,
    interfaces: str,
    own_test: str,
    no_own_test: bool,
    own_seconds: float,
    inject: tuple[str, ...],
    exclude_file: Path | None,
    telling: bool,
    path: str,
    output: str,
) -> None:
    """Test many nodes together: one process on each, by srun, torchrun or an Indexed Job.

    Rank 0 prints one document. Every node ends alike: 0 pass, 1 fail, 2 misconfigured (also wrong usage), 3 inconclusive, or rank 0 is
    gone.
    """
    try:
        place, faults = find(os.environ, socket.gethostname()), parse(inject)
    except (LauncherError, FaultError) as error:
        raise click.UsageError(str(error)) from None
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # each wait that ends in time is a warning there
    session: Any = importlib.import_module("preflight.group.session")  # torch, not before the words are understood
    limits = session.Limits(
        arrive_s=arrive_seconds, own_s=own_seconds, pair_s=pair_seconds, rounds=rounds, expected=expect
    )
    wish = session.Wish(
        limits=limits,
        backend=backend,
        interfaces=tuple(filter(None, interfaces.split(","))),
        own_command=() if no_own_test else tuple(shlex.split(own_test)) or gate(telling=telling, path=path),
        injected=inject,
        faults=faults,
    )

    def note(text: str) -> None:
        click.echo(f"preflight group {place.node}: {text}", err=True)

    try:
        end, document = session.take_part(place, wish, SystemClock(), note)
    except session.MeetingLost as error:
        note(str(error))
        _leave(Verdict.INCONCLUSIVE.exit_code)
    if document is not None:
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
        click.echo(text if output == "json" else page(document))
        if exclude_file is not None:
            exclude_file.write_text(",".join(document.exclude) + "\n")
    if telling and place.node in end.reasons:
        _tell(place, end.reasons[place.node], inject, path)
    _leave(end.exit_code)


def _tell(place: Place, reason: str, inject: tuple[str, ...], path: str) -> None:
    document = {
        "version": 2,
        "level": "group",
        "node": place.node,
        "complete": True,
        "verdict": Verdict.FAIL.value,
        "reason": reason,
        "injected": inject,
        "results": [{"test": "group", "outcome": "fail", "reason": reason}],
    }
    try:
        click.echo(f"preflight group {place.node}: {tell(msgspec.json.encode(document), path, place.node)}", err=True)
    except TellingError as error:
        click.echo(f"preflight group {place.node}: {error}", err=True)


def _leave(code: int) -> None:
    """At once: a thread may be stuck in a driver, and must not keep us."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
