"""Finds GPUs with fewer NVLinks than others of their product, or without traffic over NVLink. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from preflight.results import Outcome, Result

NVLINK = "nvlink"
LEAST_ALIKE = 3  # GPUs of one product: fewer have no majority
SLOW_SHARE = 0.5  # of the rate over NVLink; the alternatives reach a tenth


class MeasuredPath(NamedTuple):
    """The path of one directed pair: the medium reported by the driver, and GB/s."""

    sender: str
    receiver: str
    medium: str
    rate: float


class NvlinkShortfall(NamedTuple):
    """What one GPU lacks compared with most others."""

    device: str
    sentence: str
    outcome: Outcome = Outcome.FAIL


def find_missing_nvlinks(
    results: Iterable[Result], silent: Iterable[str], products: Mapping[str, str]
) -> list[NvlinkShortfall]:
    """GPUs with fewer active NVLinks than most others of their product. `silent` finished the test and have none."""
    up = {r.device: _count_possible_links(r) for r in results if "nvlinks_up" in r.evidence}
    up = dict.fromkeys(silent, 0) | up if up else {}
    lacks = []
    for names in _group_by_product(up, products):
        usual = statistics.mode(sorted((up[name] for name in names), reverse=True))
        many = sum(up[name] == usual for name in names)
        if 2 * many > len(names):
            lacks += [
                NvlinkShortfall(name, f"{up[name]} NVLinks up, {many} others have {usual}")
                for name in names
                if up[name] < usual
            ]
    return lacks


def find_gpus_off_nvlink(paths: Sequence[MeasuredPath], products: Mapping[str, str]) -> list[NvlinkShortfall]:
    """GPUs without any pair over NVLink, where most pairs of the others of their product use it.

    A failure if the rate is low too. If only the driver reports it, and the rate is normal, the result is an error.
    """
    ends = dict.fromkeys(name for path in paths for name in (path.sender, path.receiver))
    lacks = []
    for names in _group_by_product(ends, products):
        mine = [path for path in paths if {path.sender, path.receiver} <= set(names)]
        lacks += [lack for name in names if (lack := _find_off_nvlink(name, mine))]
    return lacks


def _find_off_nvlink(name: str, paths: Sequence[MeasuredPath]) -> NvlinkShortfall | None:
    around = [path for path in paths if name in (path.sender, path.receiver)]
    others = [path for path in paths if name not in (path.sender, path.receiver)]
    rates = [path.rate for path in others if path.medium == NVLINK]
    if len({path.sender for path in others}) < LEAST_ALIKE or 2 * len(rates) <= len(others):
        return None
    if not around or any(path.medium == NVLINK for path in around):
        return None
    rate, usual = statistics.median(path.rate for path in around), statistics.median(rates)
    over = ", ".join(sorted({path.medium for path in around}))
    words = f"none of its pairs uses NVLink, while most other pairs do: {rate:.3g} GB/s over {over}, {usual:.3g} GB/s over NVLink"
    return NvlinkShortfall(name, words, Outcome.FAIL if rate < SLOW_SHARE * usual else Outcome.ERROR)


def _count_possible_links(result: Result) -> int:
    """Active links, and those whose state the driver does not report."""
    evidence = result.evidence
    up, down = int(evidence["nvlinks_up"]), str(evidence.get("nvlinks_down", ""))
    return max(up, int(evidence.get("nvlink_links", up)) - len(down.split(", ") if down else []))


def _group_by_product(names: Iterable[str], products: Mapping[str, str]) -> list[list[str]]:
    """The devices of each product with enough of them."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[products.get(name, "")].append(name)
    return [group for group in groups.values() if len(group) >= LEAST_ALIKE]
