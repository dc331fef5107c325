"""Decides which nodes of a group are paired, from their reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.group.group_records import NodeReport, Standing
from preflight.results import Verdict

_OF_OWN = {
    Verdict.PASS: Standing.TESTED,
    Verdict.FAIL: Standing.UNFIT,
    Verdict.MISCONFIGURED: Standing.WAITS,
    Verdict.INCONCLUSIVE: Standing.TESTED,
}


def decide_participation(word: NodeReport | None) -> Standing:
    """How a node takes part. An inconclusive self-test does not exclude it; a running job or a failure does."""
    if word is None:
        return Standing.ABSENT
    return Standing.TESTED if word.own is None else _OF_OWN[word.own.verdict]


def find_duplicate_names(names: Sequence[str]) -> list[str]:
    """Names used by two processes."""
    return sorted({name for name in names if names.count(name) > 1})


def share_one_machine(words: Mapping[str, NodeReport]) -> bool:
    """Whether two nodes are one machine: they share its CPUs and use no cable."""
    return len({word.machine for word in words.values()}) < len(words)
