"""Which GPU has fewer NVLinks than others of its product, or none that words go over. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from preflight.results import Outcome, Result

NVLINK = "nvlink"
LEAST_ALIKE = 3  # GPUs of one product: fewer have no "most"
SLOW_SHARE = 0.5  # of what goes over NVLink; what is built instead of it carries a tenth


class MeasuredPath(NamedTuple):
    """What came over one directed pair: what the driver says it goes over, and GB/s."""

    sender: str
    receiver: str
    medium: str
    rate: float


class NvlinkShortfall(NamedTuple):
    """What one GPU lacks that most others have."""

    device: str
    sentence: str
    outcome: Outcome = Outcome.FAIL


def find_missing_nvlinks(
    results: Iterable[Result], silent: Iterable[str], products: Mapping[str, str]
) -> list[NvlinkShortfall]:
    """GPUs with fewer NVLinks up than most others of their product. `silent` came to the end of the test and have none."""
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
    """GPUs none of whose pairs go over NVLink, where most pairs of the others of their product do.

    It fails where words come slowly too. If only the driver says so, and words come as fast, that is not understood: an error.
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
    words = f"none of its pairs goes over NVLink, as most of the others' do: {rate:.3g} GB/s over {over}, {usual:.3g} GB/s over NVLink"
    return NvlinkShortfall(name, words, Outcome.FAIL if rate < SLOW_SHARE * usual else Outcome.ERROR)


def _count_possible_links(result: Result) -> int:
    """Links that are up, and those of which the driver does not say."""
    evidence = result.evidence
    up, down = int(evidence["nvlinks_up"]), str(evidence.get("nvlinks_down", ""))
    return max(up, int(evidence.get("nvlink_links", up)) - len(down.split(", ") if down else []))


def _group_by_product(names: Iterable[str], products: Mapping[str, str]) -> list[list[str]]:
    """The devices of each product that has enough of them."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[products.get(name, "")].append(name)
    return [group for group in groups.values() if len(group) >= LEAST_ALIKE]
