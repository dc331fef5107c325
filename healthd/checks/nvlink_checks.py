"""NVLinks that should be up and are down, carry no traffic, or have errors.

The expected number is the GPU model's if that is certain, else that of its siblings, else the GPU's earlier number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import SIBLINGS_MIN, GpuState, judge_gpu_level
from healthd.findings.hysteresis import Dwell, Growth
from healthd.samples.nvml import Link

CHECK = "nvlink"
_ERRORS = {
    "crc_errors": "has many transfer errors",
    "replay_errors": "often retransmits",
    "recovery_errors": "had to recover repeatedly",
}


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `nvlink` of the thresholds. `links` is the number of active links for this model; 0: it varies."""

    links: float
    raise_after_s: float
    clear_after_s: float
    crc_errors: float
    replay_errors: float
    recovery_errors: float
    window_s: float


class NvlinkCheck:
    """Remembers the most active links of each GPU, and the error rate of each link."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._down = Dwell(limits.raise_after_s, limits.clear_after_s)
        self._growth = Growth(limits.window_s)
        self._disabled = Dwell(limits.raise_after_s, limits.clear_after_s)
        self._erring = Dwell(0.0, limits.window_s)
        self._most: dict[str, int] = {}

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return a fact for links that are down, one for links without traffic, and one per kind of frequent error."""
        up = {state.gpu.uuid: count for state in gpus if (count := _count_active_links(state)) is not None}
        self._most |= {uuid: max(count, self._most.get(uuid, 0)) for uuid, count in up.items()}
        facts: list[LevelFact] = []
        for state in gpus:
            siblings = [count for uuid, count in up.items() if uuid != state.gpu.uuid]
            facts += self._inactive(state, up.get(state.gpu.uuid), siblings, now)
            facts += self._without_traffic(state, now)
            facts += self._errors(state, now)
        return facts

    def _inactive(self, state: GpuState, up: int | None, siblings: list[int], now: Moment) -> list[LevelFact]:
        expected = max(self._most.get(state.gpu.uuid, 0), _find_usual_count(siblings), int(self._limits.links))
        down = None if up is None else up < expected
        if up == 0 and not any(siblings) and not self._most.get(state.gpu.uuid):
            down = None  # no GPU ever had links: a virtual machine without NVLink
        return judge_gpu_level(
            self._down.judge(state.gpu.uuid, down, now.monotonic),
            state,
            now,
            (CHECK, "inactive"),
            f"GPU {state.gpu.index} has fewer NVLinks up than expected",
            evidence={"links_up": up, "links_expected": expected},
        )

    def _without_traffic(self, state: GpuState, now: Moment) -> list[LevelFact]:
        links = state.latest.links or ()
        known = links and all(link.traffic_disabled is not None for link in links)
        disabled = [str(link.link) for link in links if link.traffic_disabled]
        bad = bool(disabled) if known else None
        return judge_gpu_level(
            self._disabled.judge(state.gpu.uuid, bad, now.monotonic),
            state,
            now,
            (CHECK, "traffic_disabled"),
            f"the driver has disabled traffic on {len(disabled)} of the {len(links)} NVLinks of GPU {state.gpu.index}",
            evidence={"links": ", ".join(disabled)},
        )

    def _errors(self, state: GpuState, now: Moment) -> list[LevelFact]:
        links = state.read.links or ()
        facts: list[LevelFact] = []
        for code, words in _ERRORS.items():
            grown = [
                (growth, link.link) for link in links if (growth := self._grown(state, link, code, now)) is not None
            ]
            worst, link = max(grown, default=(None, None))
            bad = None if worst is None else worst >= getattr(self._limits, code)
            facts += judge_gpu_level(
                None if bad is None else self._erring.judge((state.gpu.uuid, code), bad, now.monotonic),
                state,
                now,
                (CHECK, code),
                f"an NVLink of GPU {state.gpu.index} {words}",
                evidence={"errors": worst, "link": link, "window_s": self._limits.window_s},
            )
        return facts

    def _grown(self, state: GpuState, link: Link, field: str, now: Moment) -> int | None:
        return self._growth.add((state.gpu.uuid, link.link, field), getattr(link, field), now.monotonic)


def _count_active_links(state: GpuState) -> int | None:
    """Return how many links are up; None if unknown, or if the GPU is split into MIG devices, which have none."""
    links = state.latest.links
    if not links or state.constants.mig_enabled or any(link.active is None for link in links):
        return None
    return sum(bool(link.active) for link in links)


def _find_usual_count(siblings: list[int]) -> int:
    """Return the number that most siblings have; 0 if there are too few, or they differ."""
    if len(siblings) < SIBLINGS_MIN:
        return 0
    counts = Counter(siblings)
    usual = max(counts, key=lambda links: (counts[links], links))
    return usual if 2 * siblings.count(usual) > len(siblings) else 0
