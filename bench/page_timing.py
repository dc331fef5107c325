"""How long pages take for somebody who has logged in, and what they cost the remediator."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import requests

BUDGET_MS = 300.0
PAUSE_S = 1.05  # longer than pages share what they know, so that nothing is answered from what was just worked out
DEADLINE_S = 30.0


class Look(NamedTuple):
    """Looks at one page: milliseconds of each, the page's bytes, and the remediator's processor milliseconds a look."""

    path: str
    took_ms: list[float]
    size: int
    processor_ms: float


def time_page(
    session: requests.Session,
    url: str,
    path: str,
    times: int,
    cpu_s: Callable[[], float],
    pause_s: float = PAUSE_S,
    idle_per_s: float = 0.0,
) -> Look:
    """Look so often, with pauses. `cpu_s` says what the remediator has used; what it uses besides is `idle_per_s`.

    Raises:
        requests.HTTPError: the page is not there.
    """
    took, size, used = [], 0, 0.0
    for _ in range(times):
        time.sleep(pause_s)
        before, begun = cpu_s(), time.perf_counter()
        answer = session.get(url + path, timeout=DEADLINE_S)
        size = len(answer.content)
        took_s = time.perf_counter() - begun
        took.append(took_s * 1000)
        used += cpu_s() - before - idle_per_s * took_s
        answer.raise_for_status()
    return Look(path, took, size, 1000 * used / times)


def print_page_times(looks: Iterable[Look]) -> bool:
    """Print them as a table. Returns whether every page keeps to the budget by its median."""
    print("| page | p50 ms | p95 ms | most ms | processor ms | KiB |\n|---|---:|---:|---:|---:|---:|")
    kept = True
    for each in looks:
        p50, most = statistics.median(each.took_ms), max(each.took_ms)
        p95 = statistics.quantiles(each.took_ms, n=20, method="inclusive")[18] if len(each.took_ms) > 1 else most
        kept &= p50 <= BUDGET_MS
        print(
            f"| `{each.path}` | {p50:.0f} | {p95:.0f} | {most:.0f} | {each.processor_ms:.0f} | {each.size / 1024:.0f} |"
        )
    return kept
