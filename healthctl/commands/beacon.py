"""`healthctl beacon`: the pages of the training ranks on this node, of the living and the dead."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import click

from healthctl.beacon_page import as_json, encodable, list_rows, page_blocks
from healthctl.exits import Exit, Failure
from healthctl.listing import ListsByDefault
from healthctl.output import clean
from healthctl.screen import Screen, view_options
from healthd.trainer.beacon import DEFAULT_DIRECTORY
from healthd.trainer.page import BeaconError
from healthd.trainer.pages import BeaconView, read_all
from healthd.trainer.ring import ENTRIES

directory_option = click.option(
    "--dir",
    "directory",
    envvar="HEALTHD_BEACON_DIR",
    default=DEFAULT_DIRECTORY,
    show_default=True,
    show_envvar=True,
    help="Where the pages are.",
)
job_option = click.option("--job", help="Only this job's.")
rank_option = click.option("--rank", type=click.IntRange(min=0), help="Only this rank's.")


@click.group(cls=ListsByDefault, epilog="Examples: healthctl beacon; healthctl beacon show --rank 3 --watch 1")
def beacon() -> None:
    """What each training rank on this node is doing.

    Reads the pages that the ranks publish, also those of processes that died. Only root sees those of all users.
    """


@beacon.command("list", epilog="Example: healthctl beacon list --job train-7")
@directory_option
@job_option
@rank_option
@view_options
def list_pages(screen: Screen, directory: str, job: str | None, rank: int | None) -> None:
    """Show all ranks that have a page. Ends with 1 if a page cannot be read."""
    views, errors = _read(directory, job, rank)
    none = f"no trainer page in {directory}"
    screen.show(_document(views, errors, 0), lambda: [list_rows(views, time.time(), none)])
    _end(screen, errors)


@beacon.command(epilog="Example: healthctl beacon show --rank 3 --watch 1")
@directory_option
@job_option
@rank_option
@click.option(
    "--steps", type=click.IntRange(0, ENTRIES), default=20, show_default=True, help="How many of the last steps."
)
@view_options
def show(screen: Screen, directory: str, job: str | None, rank: int | None, steps: int) -> None:
    """Show ranks whole. Who, what now, the order and the answer, the last steps by section.

    Seconds are the host's; those of sections are the GPU's where a step is marked so. A step marked "waits" has numbers
    that the GPU has not handed over yet.
    """
    views, errors = _read(directory, job, rank)
    if not views and not errors:
        wanted = " ".join([f"job {job}"] * bool(job) + [f"rank {rank}"] * (rank is not None))
        known = sorted({f"{view.identity.job} rank {view.identity.rank}" for view in read_all(directory)[0]})
        there = f"; there are: {', '.join(known[:10])}" if known else ""
        raise Failure(f"no page of {wanted or 'any rank'} in {directory}{there}")
    now = time.time()
    pages = [block for view in views for block in page_blocks(view, steps, now)]
    screen.show(_document(views, errors, steps), lambda: pages)
    _end(screen, errors)


def _read(directory: str, job: str | None, rank: int | None) -> tuple[list[BeaconView], list[BeaconError]]:
    """The ranks that were asked for; what is wrong with the pages that nobody can tell whose they are."""
    directory = directory.replace("{node}", os.environ.get("HEALTHD_NODE") or socket.gethostname())
    try:
        os.listdir(directory)  # noqa: PTH208 - only whether it can be
        views, errors = read_all(directory)
    except OSError as error:
        todo = "is healthd running here? --dir or HEALTHD_BEACON_DIR names another place"
        raise Failure(f"{directory}: {error.strerror}; {todo}") from error
    kept = [view for view in views if job in (None, view.identity.job) and rank in (None, view.identity.rank)]
    return sorted(kept, key=lambda view: view.identity[:3]), errors


def _document(views: list[BeaconView], errors: list[BeaconError], steps: int) -> dict[str, Any]:
    broken = [encodable(str(error)) for error in errors]
    return {"ranks": [as_json(view, steps) for view in views], "broken": broken}


def _end(screen: Screen, errors: list[BeaconError]) -> None:
    for error in errors:
        click.echo(f"healthctl: {clean(str(error))}", err=True)
    if errors:
        screen.code = Exit.PROBLEM
