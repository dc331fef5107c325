"""What the ranks of an attempt left in their beacon pages: their progress, and their answers to orders.

Runs on every node of an attempt after its end (`python -m healthd.launcher.rank_pages JOB ATTEMPT SINCE`): the pages
are on each node's tmpfs and outlive their writers. Unreadable pages and those of other users are skipped: the ranks'
exit codes remain.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from healthd.launcher.decisions.relaunch_policy import AttemptProgress, RankEnd
from healthd.trainer.beacons.beacon import DEFAULT_DIRECTORY
from healthd.trainer.beacons.beacon_page import OrderOutcome, Phase
from healthd.trainer.beacons.page_reader import BeaconView, read_all_pages
from healthd.trainer.exit_codes import ExitCode

CLOCKS_APART_SECONDS = (
    60.0  # clock difference between nodes; pages of an earlier job of the same name are older, or differ in the attempt
)


class RankPage(NamedTuple):
    """One rank's last state. `step` is its last finished step, -1 for none; `outcome` is empty if it had no order."""

    rank: int
    node: str
    step: int
    done: bool = False
    outcome: str = ""
    condemned: bool = False  # the order named this rank's own node
    code: int = -1  # its exit code, if published


def answer_page_question(node: str, arguments: Sequence[str], _stopped: Callable[[], bool]) -> dict[str, Any]:
    """Return this node's pages of an attempt; `arguments` are job, attempt, and start time (UTC seconds)."""
    job, attempt, since = arguments[0], int(arguments[1]), float(arguments[2])
    directory = (os.environ.get("HEALTHD_BEACON_DIR") or DEFAULT_DIRECTORY).replace("{node}", node)
    try:
        views = read_all_pages(directory, os.geteuid())[0]
    except OSError:
        views = []
    pages = [
        _encode_rank_page(view)
        for view in views
        if (view.identity.job, view.identity.attempt, view.identity.node) == (job, attempt, node)
        and view.identity.created_at >= since - CLOCKS_APART_SECONDS
        and view.uid == os.geteuid()
    ]
    return {"node": node, "pages": pages}


def parse_rank_pages(answers: Mapping[str, Mapping[str, Any]]) -> list[RankPage]:
    """Return the pages in the nodes' answers, by rank; invalid ones are skipped."""
    pages = []
    for said in answers.values():
        listed = said.get("pages")
        for entry in listed if isinstance(listed, list) else ():
            try:
                page = RankPage(**entry)
                pages.append(page._replace(rank=int(page.rank), step=int(page.step), code=int(page.code)))
            except (TypeError, ValueError):
                continue
    return sorted(pages, key=lambda page: page.rank)


def compute_progress(pages: Iterable[RankPage], *, touched: bool = False) -> AttemptProgress:
    """Return an attempt's progress."""
    return AttemptProgress(max((page.step for page in pages), default=-1), touched)


def derive_rank_ends(ends: Sequence[RankEnd], pages: Sequence[RankPage]) -> list[RankEnd]:
    """Return how the ranks ended if a program in between hides it, as torchrun does: it ends with 1 for any code.

    Args:
        ends: of the programs, one per node.
        pages: of the ranks. A node without one keeps its program's end.
    """
    told: list[RankEnd] = []
    for end in ends:
        own = [page for page in pages if page.node == end.node]
        hidden = end.code not in (None, *ExitCode)
        told += [_derive_rank_end(page, end) for page in own] if own and hidden else [end]
    return told


def _derive_rank_end(page: RankPage, end: RankEnd) -> RankEnd:
    if page.code in set(ExitCode):
        return RankEnd(page.rank, page.node, page.code)
    if page.outcome in (
        OrderOutcome.LEFT,
        OrderOutcome.SAVED,
    ):  # saved but not left: torchrun ended it when the first rank had left
        return RankEnd(page.rank, page.node, int(ExitCode.CONDEMNED if page.condemned else ExitCode.RELAUNCH))
    if page.outcome in (OrderOutcome.ABORTED, OrderOutcome.FAILED):
        return RankEnd(page.rank, page.node, int(ExitCode.ABORTED))
    return end._replace(rank=page.rank) if not page.done else RankEnd(page.rank, page.node, int(ExitCode.DONE))


def _encode_rank_page(view: BeaconView) -> dict[str, Any]:
    said, order, identity = view.acknowledgement, view.order, view.identity
    finished = [record.step for record in view.steps(1)]
    condemned = order is not None and identity.node in order.condemned
    done = view.state.phase is Phase.DONE
    outcome = said.outcome.value if said is not None else ""
    code = said.exit_code if said is not None else -1
    step = finished[-1] if finished else -1
    return RankPage(identity.rank, identity.node, step, done, outcome, condemned, code)._asdict()


def main() -> None:
    """Print this node's pages as one line of JSON."""
    node = os.environ.get("HEALTHD_NODE") or os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    sys.stdout.write(json.dumps(answer_page_question(node, sys.argv[1:], lambda: False)) + "\n")


if __name__ == "__main__":
    main()
