"""The command line of ``python -m preflight group``, one process on each node."""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from preflight.command_options import output_option, socket_option
from preflight.execution.idle_preemption import request_idle_stop
from preflight.group.group_records import Accusation, GroupDocument
from preflight.group.group_text import render_group_text
from preflight.group.injected_faults import FORMS, FaultError, parse_injected_faults
from preflight.group.launchers.launcher_detection import detect_placement
from preflight.group.launchers.rank_placement import LauncherError, RankPlacement
from preflight.group.message_seal import KEY_CHARACTERS_MIN, KEY_NAME
from preflight.group.node_self_test import build_gate_command
from preflight.integrations.healthd_delivery import DeliveryError, deliver_to_healthd
from preflight.results import Verdict
from vocabulary.clock import SystemClock

Seconds = click.FloatRange(0.5, 86_400)


@click.command(epilog="Example: healthctl preflight group --expect 40 --exclude-file slow")
@click.option(
    "--rounds", default=4, show_default=True, type=click.IntRange(1, 64), help="Rounds of pairs before confirmation."
)
@click.option(
    "--arrive-seconds", default=120.0, show_default=True, type=Seconds, help="Time to wait for all nodes, in s."
)
@click.option(
    "--pair-seconds", default=30.0, show_default=True, type=Seconds, help="Time limit for one pair on one rail, in s."
)
@click.option("--expect", type=click.FloatRange(min=0, min_open=True), metavar="GB/S", help="Expected rate of a healthy pair per direction.")  # fmt: skip
@click.option("--backend", type=click.Choice(["auto", "gloo", "nccl"]), default="auto", show_default=True, help="Transport; auto: NCCL on GPUs, else TCP.")  # fmt: skip
@click.option(
    "--interfaces", default="", metavar="NAMES", help="Network interfaces for TCP, each a rail, separated by commas."
)
@click.option("--own-test", default="", metavar="COMMAND", help="Command that prints a preflight document. Default: this node's gate.")  # fmt: skip
@click.option("--no-own-test", is_flag=True, help="Test pairs only, without the nodes' own tests.")
@click.option(
    "--own-seconds", default=120.0, show_default=True, type=Seconds, help="Time limit for a node's own test, in s."
)
@click.option(
    "--inject",
    multiple=True,
    metavar="FAULT",
    help=f"Inject a fault, to verify the detection. Can be repeated: {FORMS}.",
)
@click.option("--exclude-file", type=click.Path(path_type=Path), metavar="FILE", help="File to which rank 0 writes the nodes to exclude, separated by commas.")  # fmt: skip
@click.option("--tell", "report_to_healthd", is_flag=True, help="Report culprits to their own healthd; requires root.")
@socket_option
@output_option
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
    report_to_healthd: bool,
    path: str,
    output: str,
) -> None:
    """Test many nodes together, one process on each, started by srun, torchrun or an Indexed Job.

    Rank 0 prints one document. --tell requires HEALTHD_GROUP_KEY, equal on all nodes. Every node exits with 0 pass, 1 fail, 2 misconfigured (also wrong usage), 3 inconclusive, or rank 0 was lost.
    """
    try:
        place, faults = detect_placement(os.environ, socket.gethostname()), parse_injected_faults(inject)
    except (LauncherError, FaultError) as error:
        raise click.UsageError(str(error)) from None
    key = _read_group_key(needed=report_to_healthd)
    _check_writable(exclude_file, place)
    request_idle_stop()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch prints a warning for each wait with a timeout
    session: Any = importlib.import_module("preflight.group.group_session")  # imports torch, so after validation
    own_command = tuple(shlex.split(own_test)) or build_gate_command(path if report_to_healthd else "")
    seconds = {"arrive_s": arrive_seconds, "own_s": own_seconds, "pair_s": pair_seconds}
    options = session.GroupOptions(
        limits=session.GroupLimits(**seconds, rounds=rounds, expected=expect),
        backend=backend,
        interfaces=tuple(filter(None, interfaces.split(","))),
        own_command=() if no_own_test else own_command,
        own_tells=report_to_healthd and not own_test,
        key=key,
        injected=inject,
        faults=faults,
    )

    def note(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the reader may be gone, which does not change the verdict
            click.echo(f"preflight group {place.node}: {text}", err=True)

    try:
        end, document = session.run_group_member(place, options, SystemClock(), note)
    except (session.RendezvousLost, session.GroupMismatch) as error:
        note(str(error))
        lost = isinstance(error, session.RendezvousLost)
        _exit_immediately((Verdict.INCONCLUSIVE if lost else Verdict.MISCONFIGURED).exit_code)
    if report_to_healthd and place.rank in end.accused:
        note(_report_to_healthd(place, end.accused[place.rank], end.injected, path))
    if document is not None:
        _print_document(document, output, exclude_file, note)
    _exit_immediately(end.exit_code)


def _read_group_key(*, needed: bool) -> bytes:
    key = os.environ.get(KEY_NAME, "")
    if (key or needed) and len(key) < KEY_CHARACTERS_MIN:
        raise click.UsageError(
            f"{KEY_NAME} {'is too short' if key else 'is not set'}, and --tell requires one: give all nodes of the group the "
            f"same random text of at least {KEY_CHARACTERS_MIN} characters, for example from: openssl rand -hex 32"
        )
    return key.encode()


def _check_writable(path: Path | None, place: RankPlacement) -> None:
    """Before the test, check that the verdict can be written. Only rank 0 writes.

    Raises:
        UsageError: the file cannot be written.
    """
    if path is None or place.rank != 0:
        return
    try:
        path.open("a").close()
    except OSError as error:
        raise click.UsageError(f"--exclude-file {path} cannot be written: {error.strerror}") from None


def _print_document(
    document: GroupDocument, output: str, exclude_file: Path | None, note: Callable[[str], None]
) -> None:
    """Write errors do not change the verdict."""
    try:
        if exclude_file is not None:
            exclude_file.write_text(",".join(document.exclude) + "\n")
    except OSError as error:
        note(f"--exclude-file {exclude_file} could not be written: {error.strerror}")
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    try:
        click.echo(text if output == "json" else render_group_text(document))
    except (OSError, ValueError) as error:
        note(f"the document could not be printed: {error}")


def _report_to_healthd(place: RankPlacement, accusation: Accusation, injected: tuple[str, ...], path: str) -> str:
    result = {
        "test": "group",
        "outcome": accusation.verdict.value,
        "reason": accusation.reason,
        "locations": [{"nic": accusation.nic}] if accusation.nic else [],
    }
    document = {
        "version": 2,
        "level": "group",
        "node": place.node,
        "complete": True,
        "verdict": accusation.verdict.value,
        "reason": accusation.reason,
        "injected": injected,
        "results": [result],
    }
    try:
        return deliver_to_healthd(msgspec.json.encode(document), path, place.node)
    except DeliveryError as error:
        return str(error)


def _exit_immediately(code: int) -> None:
    """Exit at once: a thread may be stuck in a driver."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
