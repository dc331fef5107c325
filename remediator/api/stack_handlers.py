"""The stacks in an incident's evidence bundles, folded into one tree per job."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remediator.api.evidence_handlers import evidence_store_of
from remediator.api.handler_context import json_response
from remediator.model.views_evidence import EvidenceEntry, IncidentStacks, JobStacks
from remediator.store.evidence_store import EvidenceStore
from vocabulary.messages.evidence_bundle import RankStack
from vocabulary.stacks.stack_places import classify_stack
from vocabulary.stacks.stack_tree import fold_stacks, render_stack_tree

BUNDLES_MAX = 256  # the newest
JOBS_MAX, FRAMES_MAX, LINES_MAX, LINE_CHARS_MAX = 8, 64, 2000, 300
TREES_KEPT = 16  # incidents whose trees stay in memory

log = logging.getLogger("remediator.api")


class _BundleStacks(msgspec.Struct, frozen=True):
    """What is read of a bundle."""

    stacks: tuple[RankStack, ...] = ()


async def show_stacks(request: Request) -> Response:
    """`GET /v1/incidents/{id}/stacks`."""
    store, incident = evidence_store_of(request), request.path_params["incident"]
    entries = (await asyncio.to_thread(store.of_incident, incident))[-BUNDLES_MAX:]
    kept: dict[tuple[str, ...], IncidentStacks] = request.app.state.stack_trees
    key = (incident, *(entry.order for entry in entries))
    if key not in kept:
        async with request.app.state.evidence_turns:
            folded = await asyncio.to_thread(_fold_bundles, store, incident, entries)
        kept[key] = folded
        while len(kept) > TREES_KEPT:
            del kept[next(iter(kept))]
    return json_response(kept[key])


def _fold_bundles(store: EvidenceStore, incident: str, entries: Iterable[EvidenceEntry]) -> IncidentStacks:
    newest: dict[tuple[str, int, int], RankStack] = {}
    for stack in _read_stacks(store, incident, entries):
        name = (stack.job, stack.attempt, stack.rank)
        if name not in newest or stack.at >= newest[name].at:
            newest[name] = stack
    by_job = groupby(sorted(newest.items()), lambda each: each[0][:2])
    jobs = (_fold_job([stack for _, stack in of_job]) for _, of_job in by_job)
    return IncidentStacks(tuple(job for _, job in zip(range(JOBS_MAX), jobs, strict=False)))


def _read_stacks(store: EvidenceStore, incident: str, entries: Iterable[EvidenceEntry]) -> Iterator[RankStack]:
    for entry in entries:
        content = store.content(incident, entry.order)
        try:
            yield from msgspec.json.decode(gzip.decompress(content or b""), type=_BundleStacks).stacks
        except (msgspec.MsgspecError, OSError, EOFError) as error:  # it was valid on arrival
            log.error("the stacks of order %s cannot be read: %s", entry.order, error)


def _fold_job(stacks: list[RankStack]) -> JobStacks:
    """Fold the stacks of one job; places are found again here, so that all nodes' ranks are judged alike."""
    frames = {stack.rank: stack.frames[-FRAMES_MAX:] for stack in stacks}
    places = Counter(classify_stack(each).value for each in frames.values())
    lines = [line[:LINE_CHARS_MAX] for line in render_stack_tree(fold_stacks(frames.items()))]
    left = len(lines) - LINES_MAX
    return JobStacks(
        job=stacks[0].job,
        attempt=stacks[0].attempt,
        ranks=len(stacks),
        from_at=min(stack.at for stack in stacks),
        to_at=max(stack.at for stack in stacks),
        places=dict(places.most_common()),
        lines=(*lines[:LINES_MAX], *([f"and {left} more lines"] if left > 0 else [])),
    )
