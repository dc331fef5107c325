"""Links between devices: every pair exchanges data, in rounds of disjoint pairs; rates, data, and the NVLinks' own counters.

Each device reports the data from each partner. `preflight.device_comparison.link_results` determines the culprit; it is
also called here, over all measurements, to choose the pairs to measure again.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator

from preflight.check_context import Context, Device
from preflight.checks import nvlink_state
from preflight.checks.pair_exchange import (
    PairExchange,
    PartnerRates,
    gather_device_values,
    reduce_longest_seconds,
    wait_for_all_devices,
)
from preflight.device_comparison.link_results import HOST, plan_next_pairs
from preflight.fault_localisation.localisation_records import PairResult, Round
from preflight.fault_localisation.pair_rounds import plan_pair_rounds
from preflight.results import Figure, Location, Outcome, Result

TEST = "peer_links"
PASSES_MAX = {"gate": 1, "standard": 2}  # through all pairs; a burn-in continues as long as time permits
CONFIRMATIONS_MAX = 4
SEED = 1


def check_peer_links(context: Context) -> Iterator[Result]:
    """One result per partner's data, one for the NVLinks of this device; one 'not applicable' for a single device."""
    device = context.device
    if device is None:
        raise ValueError("peer_links tests devices against each other and needs a device")
    if len(context.devices) < 2:
        yield Result(test=TEST, outcome=Outcome.NOT_APPLICABLE, reason="a single device has no peer")
        return
    links = nvlink_state.NvLinkReader(device, context.devices, context.note)
    began, before = time.perf_counter(), links.read()
    mediums = {peer.name: HOST if device.on_host else links.medium(peer) for peer in context.devices if peer != device}
    yield from _PairRounds(context, device, mediums).run()
    yield from links.judged(before, links.read(), time.perf_counter() - began, context.fault)


class _PairRounds:
    """The sequence of pairs, the same on every device, and its results."""

    def __init__(self, context: Context, device: Device, mediums: dict[str, str]) -> None:
        self._context, self._device, self._mediums = context, device, mediums
        self._names = [each.name for each in context.devices]
        self._exchange = PairExchange(context, device)
        self._met: list[tuple[int, Round]] = []
        self._incoming: list[float] = []  # one for each of `_met`; NaN: not measured

    def run(self) -> Iterator[Result]:
        """All pairs, once or several times, then the pairs to confirm."""
        wait_for_all_devices(self._device)  # NCCL requires all ranks of a group in its first call, and pairs are fewer
        began, passes = time.perf_counter(), 0
        plan = plan_pair_rounds(self._names, {}, len(self._names), SEED)
        while True:
            for pairs in plan:
                yield from self._round(pairs)
            passes += 1
            spent = reduce_longest_seconds(self._device, time.perf_counter() - began)
            more = spent * (passes + 1) / passes < self._context.seconds
            if not more or passes >= PASSES_MAX.get(self._context.level, math.inf):
                break
        for _ in range(CONFIRMATIONS_MAX):
            self._context.note("reporting the received data to the peers")
            pairs = plan_next_pairs(self._measured(), self._names, HOST if self._device.on_host else "")
            if not pairs:
                return
            yield from self._round(pairs)

    def _round(self, pairs: Round) -> Iterator[Result]:
        number = len(self._met) + 1
        self._met.append((number, pairs))
        if self._context.fault == "silent":
            signal.pause()  # before it is announced: the device that announced least is the one the others wait for
        peers = [end for pair in pairs if self._device.name in pair for end in pair if end != self._device.name]
        self._context.note(f"round {number}: data to and from {peers[0]}" if peers else f"round {number}: no partner")
        received = self._exchange.with_peer(self._names.index(peers[0]), number) if peers else None
        self._incoming.append(received.alone if received else math.nan)
        self._context.note(f"round {number}: done, waiting for the others")
        wait_for_all_devices(self._device)
        if received:
            yield self._result(number, peers[0], received)

    def _result(self, number: int, peer: str, received: PartnerRates) -> Result:
        medium = self._mediums[peer]
        reason = f"from {peer}: {received.wrong.sentence()}" if received.wrong else ""
        return Result(
            test=TEST,
            outcome=Outcome.FAIL if received.wrong else Outcome.PASS,
            device=self._device.name,
            reason=reason,
            figures=(
                Figure(name="pair_rate", value=received.alone, unit="GB/s", setting=medium),
                Figure(name="pair_rate", value=received.both_ways, unit="GB/s", setting=f"{medium}, both ways"),
            ),
            locations=(Location(gpu=self._device.name, peer=peer),),
            evidence={
                "round": number,
                "bytes": self._exchange.nbytes,
                "transfers": 2 * self._exchange.repeats * self._exchange.transfers,
            },
        )

    def _measured(self) -> list[PairResult]:
        """The measurements of all devices, equal on each: for a pair the slower of both directions."""
        table = gather_device_values(self._device, self._incoming)
        place = {name: index for index, name in enumerate(self._names)}
        return [
            PairResult(number, a, b, None, min(table[place[a]][turn], table[place[b]][turn]))
            for turn, (number, pairs) in enumerate(self._met)
            for a, b in pairs
        ]
