"""`healthctl beacon`: the beacons of the training ranks on this node, of running and ended processes."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import click

from healthctl.cli.default_group import DefaultListGroup
from healthctl.cli.screen import Screen, view_options
from healthctl.exit_codes import Exit, Failure
from healthctl.pages.beacon_page import beacon_to_json, render_beacon_list, render_beacon_page, replace_surrogates
from healthctl.rendering.blocks import escape_control_chars
from healthd.trainer.beacons.beacon import DEFAULT_DIRECTORY
from healthd.trainer.beacons.beacon_page import BeaconError
from healthd.trainer.beacons.page_reader import BeaconView, read_all_pages
from healthd.trainer.beacons.step_ring import ENTRIES

directory_option = click.option(
    "--dir",
    "directory",
    envvar="HEALTHD_BEACON_DIR",
    default=DEFAULT_DIRECTORY,
    show_default=True,
    show_envvar=True,
    help="Directory of the beacons.",
)
job_option = click.option("--job", help="Filter by job.")
rank_option = click.option("--rank", type=click.IntRange(min=0), help="Filter by rank.")


@click.group(cls=DefaultListGroup, epilog="Examples: healthctl beacon; healthctl beacon show --rank 3 --watch 1")
def beacon() -> None:
    """Show what each training rank on this node is doing.

    Reads the shared-memory pages of running ranks and of those that died. Only root can read the pages of all users.
    """


@beacon.command("list", epilog="Example: healthctl beacon list --job train-7")
@directory_option
@job_option
@rank_option
@view_options
def list_pages(screen: Screen, directory: str, job: str | None, rank: int | None) -> None:
    """List all ranks with a beacon. Exits with 1 if one cannot be read."""
    views, errors = _read_beacons(directory, job, rank)
    none = f"no beacon in {directory}"
    screen.show(_build_json_document(views, errors, 0), lambda: [render_beacon_list(views, time.time(), none)])
    _report_unreadable_beacons(screen, errors)


@beacon.command("show", epilog="Example: healthctl beacon show --rank 3 --watch 1")
@directory_option
@job_option
@rank_option
@click.option(
    "--steps", type=click.IntRange(0, ENTRIES), default=20, show_default=True, help="Number of recent steps to show."
)
@view_options
def show_beacons(screen: Screen, directory: str, job: str | None, rank: int | None, steps: int) -> None:
    """Show ranks in detail. Includes identity, current operation, order and answer, last steps by section.

    Times are the host's; times of sections are the GPU's for steps marked so. A step marked "waits" has GPU times that
    are not available yet.
    """
    views, errors = _read_beacons(directory, job, rank)
    if not views and not errors:
        wanted = " ".join([f"job {job}"] * bool(job) + [f"rank {rank}"] * (rank is not None))
        known = sorted({f"{view.identity.job} rank {view.identity.rank}" for view in read_all_pages(directory)[0]})
        there = f"; available: {', '.join(known[:10])}" if known else ""
        raise Failure(f"no beacon of {wanted or 'any rank'} in {directory}{there}")
    now = time.time()
    pages = [block for view in views for block in render_beacon_page(view, steps, now)]
    screen.show(_build_json_document(views, errors, steps), lambda: pages)
    _report_unreadable_beacons(screen, errors)


def _read_beacons(directory: str, job: str | None, rank: int | None) -> tuple[list[BeaconView], list[BeaconError]]:
    """The selected ranks, and the errors of pages whose rank is unknown."""
    directory = directory.replace("{node}", os.environ.get("HEALTHD_NODE") or socket.gethostname())
    try:
        os.listdir(directory)  # noqa: PTH208 - only whether it can be
        views, errors = read_all_pages(directory)
    except OSError as error:
        todo = "check that healthd is running here; --dir or HEALTHD_BEACON_DIR selects another directory"
        raise Failure(f"{directory}: {error.strerror}; {todo}") from error
    kept = [view for view in views if job in (None, view.identity.job) and rank in (None, view.identity.rank)]
    return sorted(kept, key=lambda view: view.identity[:3]), errors


def _build_json_document(views: list[BeaconView], errors: list[BeaconError], steps: int) -> dict[str, Any]:
    broken = [replace_surrogates(str(error)) for error in errors]
    return {"ranks": [beacon_to_json(view, steps) for view in views], "broken": broken}


def _report_unreadable_beacons(screen: Screen, errors: list[BeaconError]) -> None:
    for error in errors:
        click.echo(f"healthctl: {escape_control_chars(str(error))}", err=True)
    if errors:
        screen.code = Exit.PROBLEM
