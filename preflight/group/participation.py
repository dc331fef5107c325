"""Who of a group may be paired, by what each node said first. Pure."""

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
    """How a node takes part. One whose own test came to no conclusion is paired; one that a job uses, or that fails, is not."""
    if word is None:
        return Standing.ABSENT
    return Standing.TESTED if word.own is None else _OF_OWN[word.own.verdict]


def find_duplicate_names(names: Sequence[str]) -> list[str]:
    """Names that two processes gave."""
    return sorted({name for name in names if names.count(name) > 1})


def share_one_machine(words: Mapping[str, NodeReport]) -> bool:
    """Whether two of the nodes are one machine: they share its processors and never use a cable."""
    return len({word.machine for word in words.values()}) < len(words)
