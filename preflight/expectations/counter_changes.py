"""What changed in a GPU's hardware counters and error states during a test, and what that means for it. Pure.

Errors that the hardware itself counts decide whatever the test's own comparison found: ECC corrects a weak cell before any
pattern can see it, and a double-bit error may hit a word that no pattern compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from preflight.host.counter_records import HardwareCounters
from preflight.results import CounterChange, Outcome
from vocabulary.hardware.recovery_requests import NONE, RECOVERY_REQUESTS
from vocabulary.text.plurals import format_count

REPLACE = "run the field diagnostic and plan a replacement"
RESET = "reset the GPU"
LEAST_MINUTES = 1 / 6  # a limit per minute, in a test shorter than 10 s


class CounterRule(msgspec.Struct, frozen=True, kw_only=True):
    """How many a counter may add: `per_test` at each level, or `per_minute`; without either, none. `remark`: any number.

    `one` and `many` name them in sentences; `advice` completes one about too many.
    """

    one: str
    many: str
    advice: str = ""
    per_test: Mapping[str, float] = {}
    per_minute: float | None = None
    remark: bool = False

    def allowed(self, level: str, seconds: float, tests: int = 1) -> float:
        """The largest increase that is no fault in so many tests of this level, which took this long together."""
        if self.remark:
            return float("inf")
        if self.per_minute is not None:
            return self.per_minute * max(LEAST_MINUTES, seconds / 60)
        return self.per_test.get(level, 0.0) * tests


# One weak cell is what ECC is for, and no reason to drain a node. It is corrected each time it is read: a test of memory
# reads each cell at most 45 times a second (8 TB/s over 180 GB), for 1, 10 and 60 s. More than that is more than one cell.
CORRECTED_PER_TEST = {"gate": 50.0, "standard": 500.0, "burn-in": 3000.0}
RULES: Mapping[str, CounterRule] = {
    "ecc_uncorrected": CounterRule(
        one="uncorrectable ECC error", many="uncorrectable ECC errors", advice=f"{RESET}; if it recurs, {REPLACE}"
    ),
    "ecc_corrected": CounterRule(
        one="corrected ECC error", many="corrected ECC errors", advice=REPLACE, per_test=CORRECTED_PER_TEST
    ),
    "remapped_uncorrectable": CounterRule(
        one="row remapped for an uncorrectable error",
        many="rows remapped for uncorrectable errors",
        advice=f"{RESET}, which makes the remap effective, and test again",
    ),
    "remapped_correctable": CounterRule(
        one="row remapped for corrected errors", many="rows remapped for corrected errors", remark=True
    ),
    "retired_double_bit": CounterRule(
        one="page retired for a double-bit error", many="pages retired for double-bit errors", advice=RESET
    ),
    "retired_single_bit": CounterRule(
        one="page retired for corrected errors", many="pages retired for corrected errors", remark=True
    ),
    # dcgmi diag allows 80 replays in its PCIe test.
    "pcie_replays": CounterRule(
        one="PCIe replay", many="PCIe replays", advice="reseat the card and check the riser", per_minute=480.0
    ),
    # As `preflight.checks.nvlink_state`: single errors are corrected, a replay costs microseconds, a recovery stops the link.
    "nvlink_crc": CounterRule(one="transfer error", many="transfer errors", per_minute=6000.0),
    "nvlink_effective_errors": CounterRule(
        one="error behind the link's error correction",
        many="errors behind the link's error correction",
        per_minute=6000.0,
    ),
    "nvlink_replays": CounterRule(one="replay", many="replays", per_minute=60.0),
    "nvlink_recoveries": CounterRule(one="recovery", many="recoveries"),
    "hw_thermal_slowdown_ns": CounterRule(one="hardware thermal slowdown", many="", remark=True),
    "hw_power_brake_ns": CounterRule(one="the power brake", many="", remark=True),
    "sw_thermal_slowdown_ns": CounterRule(one="the driver's thermal slowdown", many="", remark=True),
}
# Slowdown that these reasons show if the driver has no counter of it (nvmlClocksEventReasons).
SLOWDOWN_REASONS = {0x40: "hw_thermal_slowdown_ns", 0x80: "hw_power_brake_ns", 0x20: "sw_thermal_slowdown_ns"}
# Tests that judge these counters themselves, around their own traffic.
OWN_COUNTERS: Mapping[str, tuple[str, ...]] = {"peer_links": ("nvlink_",), "host_link": ("pcie_replays",)}


class CounterFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One conclusion: FAIL, ERROR (inconclusive) or PASS, which is only a remark. `link` is that of an NVLink counter."""

    outcome: Outcome
    words: str
    name: str = ""
    where: str = ""

    @property
    def link(self) -> int | None:
        """The number of the NVLink it is about."""
        number = self.where.removeprefix("NVLink ")
        return int(number) if number != self.where and number.isdigit() else None


def list_counter_changes(before: HardwareCounters, after: HardwareCounters) -> tuple[CounterChange, ...]:
    """Every counter whose value differs. One that only one of the readings has did not change."""
    old = {(counter.name, counter.where): counter.value for counter in before.counters}
    return tuple(
        CounterChange(name=counter.name, where=counter.where, before=was, after=counter.value)
        for counter in after.counters
        if (was := old.get((counter.name, counter.where))) is not None and was != counter.value
    )


def judge_counters(
    before: HardwareCounters, after: HardwareCounters, *, test: str, level: str, seconds: float, tests: int = 1
) -> tuple[CounterFinding, ...]:
    """The conclusions from two readings of one GPU around `test`, which took this many seconds, or around several `tests`."""
    if failed := _judge_unread(before, after):
        return failed
    own = OWN_COUNTERS.get(test, ())
    changes = [change for change in list_counter_changes(before, after) if not change.name.startswith(own)]
    found = [_judge_change(change, level, seconds, tests) for change in changes]
    return (*_judge_states(before, after), *(finding for finding in found if finding), *_judge_reasons(after, changes))


def judge_error_states(now: HardwareCounters) -> tuple[CounterFinding, ...]:
    """The failures that one reading shows: a lost GPU, a pending or failed remap, a requested recovery."""
    blank = HardwareCounters(uuid=now.uuid)
    unread = tuple(finding for finding in _judge_unread(blank, now) if finding.outcome is Outcome.FAIL)
    return unread or _judge_states(blank, now)


def describe_unsupported(counters: HardwareCounters) -> str:
    """Which kinds of counters the driver does not report, as a sentence; empty if none."""
    if not counters.unsupported:
        return ""
    return f"the driver does not report {', '.join(counters.unsupported)}: errors of this kind remain unknown"


def _judge_unread(before: HardwareCounters, after: HardwareCounters) -> tuple[CounterFinding, ...]:
    if after.lost and not before.lost:
        words = "the driver lost the GPU; reboot the node, and replace the GPU if it recurs"
        return (CounterFinding(outcome=Outcome.FAIL, words=words, name="lost"),)
    if after.reset_required and not before.reset_required:
        words = f"the driver requires a reset of the GPU; {RESET}"
        return (CounterFinding(outcome=Outcome.FAIL, words=words, name="reset_required"),)
    if failure := after.failure or before.failure:
        words = (
            f"the hardware counters could not be read ({failure}): errors that the hardware corrected remain unknown"
        )
        return (CounterFinding(outcome=Outcome.PASS, words=words, name="unread"),)
    return ()


def _judge_change(change: CounterChange, level: str, seconds: float, tests: int) -> CounterFinding | None:
    rule = RULES.get(change.name)
    if rule is None:
        return None
    where = f"{change.where}: " if change.where else ""
    values = f"{change.before} → {change.after}"
    added = change.after - change.before
    if added < 0:
        words = f"{where}the counter of {rule.many or rule.one} went backwards ({values}): was the driver reloaded or the GPU reset?"
        return CounterFinding(outcome=Outcome.PASS, words=words, name=change.name, where=change.where)
    if change.name.endswith("_ns"):
        words = f"measured under {rule.one}, for {added / 1e9:.3g} of {seconds:.3g} s"
        return CounterFinding(outcome=Outcome.PASS, words=words, name=change.name)
    allowed = rule.allowed(level, seconds, tests)
    words = f"{where}{added} more {rule.one if added == 1 else rule.many} ({change.name} {values}"
    if added <= allowed:
        return CounterFinding(outcome=Outcome.PASS, words=f"{words})", name=change.name, where=change.where)
    words += f", {allowed:g} allowed)" if allowed else ")"
    if rule.advice:
        words += f"; {rule.advice}"
    return CounterFinding(outcome=Outcome.FAIL, words=words, name=change.name, where=change.where)


def _judge_states(before: HardwareCounters, after: HardwareCounters) -> tuple[CounterFinding, ...]:
    states = (
        ("remap_failed", after.remap_failed and not before.remap_failed, f"a row remap failed; {REPLACE}"),
        ("remap_pending", after.remap_pending and not before.remap_pending, f"a row remap is pending; {RESET}"),
        (
            "retirement_pending",
            after.retirement_pending and not before.retirement_pending,
            f"the retirement of a page is pending; {RESET}",
        ),
    )
    found = [CounterFinding(outcome=Outcome.FAIL, words=words, name=name) for name, new, words in states if new]
    action = after.recovery_action
    if action is not None and action not in (NONE, before.recovery_action):
        request = RECOVERY_REQUESTS.get(action)
        asked = request.words if request else "an action unknown to this release"
        words = f"the driver asks for {asked} (recovery action {action})"
        found.append(CounterFinding(outcome=Outcome.FAIL, words=words, name="recovery_action"))
    return tuple(found)


def _judge_reasons(after: HardwareCounters, changes: Sequence[CounterChange]) -> tuple[CounterFinding, ...]:
    """Remarks on slowdown that is active now, if no counter has shown it."""
    counted = {change.name for change in changes}
    return tuple(
        CounterFinding(outcome=Outcome.PASS, words=f"{RULES[name].one} was active at its end", name=name)
        for bit, name in SLOWDOWN_REASONS.items()
        if (after.throttle_reasons or 0) & bit and name not in counted
    )


def describe_findings(findings: Sequence[CounterFinding], outcome: Outcome) -> str:
    """The sentences of the findings with this outcome, at most five."""
    words = [finding.words for finding in findings if finding.outcome is outcome]
    more = [f"and {format_count(len(words) - 5, 'more change')}"] if len(words) > 5 else []
    return "; ".join(words[:5] + more)
