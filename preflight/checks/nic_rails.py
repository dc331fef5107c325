"""Network ports of the node: state, rate, PCIe width, errors, and data sent over each port to its peers."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from preflight.check_context import Context
from preflight.checks import rail_gpu_memory
from preflight.host import network_rails, rail_traffic, rdma_loop
from preflight.host.gpu_locality import SAME_SWITCH, NearGpu
from preflight.host.network_rails import NetworkRail, WantedRail
from preflight.host.rail_traffic import TrafficResult
from preflight.host.significant_digits import round_to_four_digits
from preflight.results import Evidence, Figure, Location, Outcome, Result
from vocabulary.hardware.machine_files import Machine

TEST = "nic_rails"
WANTED_VARIABLE = "HEALTHD_PREFLIGHT_RAILS"
PEERS_VARIABLE = "HEALTHD_PREFLIGHT_RAIL_PEERS"
LEAST_GB_S = 0.02  # the minimum for training; a rate above it says little, as TCP and Python limit it
LOOP_SHARE = 0.5  # of the loopback rate of other RDMA ports of the node
SECONDS_SHARE = 0.2  # of the test's time, for one peer
SLOW_S = 0.3
LOOP = "loop"
WHOSE = "the fault is at this end, the other end or in between: name a second peer to tell them apart"
_LOOP_PORT = 18515
_GPU_LOOP_PORT = 18615


class RailPeer(msgspec.Struct, frozen=True):
    """A peer at the other end of a rail."""

    rail: str
    address: tuple[str, int]

    @property
    def where(self) -> str:
        """``10.0.0.2:18600``."""
        return f"{self.address[0]}:{self.address[1]}"


class _RailInspection(msgspec.Struct, frozen=True):
    """One tested rail; `carried` is the result of each peer that responded.

    `slow` are faults by the rates of other ports only, `wrong` what an operator must put right; `gpu` is the nearest one.
    """

    rail: NetworkRail
    faults: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    carried: tuple[tuple[RailPeer, TrafficResult], ...] = ()
    gpu: NearGpu | None = None


def check_nic_rails(
    context: Context, machine: Machine | None = None, environ: Mapping[str, str] | None = None
) -> Iterator[Result]:
    """One result per rail; 'not applicable' if the machine has none."""
    machine, environ = machine or Machine(), os.environ if environ is None else environ
    try:
        names, peers = (
            network_rails.parse_wanted_rails(environ.get(WANTED_VARIABLE, "")),
            parse_peers(environ.get(PEERS_VARIABLE, "")),
        )
    except ValueError as error:
        reason = f"{WANTED_VARIABLE} or {PEERS_VARIABLE}: {error}"
        yield Result(test=TEST, outcome=Outcome.NOT_RUN, reason=reason, misconfigured=True)
        return
    context.note("reading the state of the network ports")
    if context.fault:
        yield from _simulate_fault(context)
        return
    tested, missing = _select_rails(machine, names, peers)
    for name in missing:
        reason = "no such port on this machine"
        yield Result(test=TEST, outcome=Outcome.FAIL, device=name, reason=reason, locations=(Location(nic=name),))
    if not tested and not missing:
        yield Result(test=TEST, outcome=Outcome.NOT_APPLICABLE, reason="no network adapter that can be a rail")
        return
    yield from _compare_rails([_inspect_rail(context, machine, rail, tested, names, peers) for rail in tested])


def _select_rails(
    machine: Machine, names: tuple[WantedRail, ...], peers: tuple[RailPeer, ...]
) -> tuple[tuple[NetworkRail, ...], tuple[str, ...]]:
    """The rails to test, and requested ones that are missing. A requested one need not look like an adapter."""
    there = list(network_rails.read_network_rails(machine))
    asked = (*names, *(WantedRail(peer.rail) for peer in peers))
    found = (network_rails.read_interface(machine, name) for name in network_rails.find_missing_rails(there, asked))
    there += [rail for rail in found if rail]
    every = (*network_rails.select_rails(there, names), *(network_rails.select_rails(there, asked) if asked else ()))
    return tuple({rail.name: rail for rail in every}.values()), network_rails.find_missing_rails(there, asked)


def parse_peers(text: str) -> tuple[RailPeer, ...]:
    """``eth1=10.0.0.2:18600,…``.

    Raises:
        ValueError: malformed; the message names the part.
    """
    found = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        match = re.fullmatch(r"([^=\s]+)=([0-9.]+):(\d{1,5})", word)
        if match is None:
            raise ValueError(f"{word!r} is not a peer: write INTERFACE=ADDRESS:PORT, e.g. eth1=10.0.0.2:18600")
        found.append(RailPeer(match[1], (match[2], int(match[3]))))
    return tuple(found)


def _inspect_rail(
    context: Context,
    machine: Machine,
    rail: NetworkRail,
    tested: tuple[NetworkRail, ...],
    names: tuple[WantedRail, ...],
    peers: tuple[RailPeer, ...],
) -> _RailInspection:
    faults, remarks = network_rails.judge_rail(rail, tested, names)
    seen = _RailInspection(rail, tuple(faults), remarks=tuple(remarks))
    if rail.up is False:
        return seen
    if "/" in rail.name:
        seen = _test_rdma_loop(context, seen, _LOOP_PORT + tested.index(rail))
        seen = _test_gpu_memory(context, machine, seen, _GPU_LOOP_PORT + tested.index(rail))
    for peer in peers:
        if peer.rail in (rail.name, rail.interface):
            seen = _test_peer_traffic(context, seen, peer)
    seen = _judge_traffic(seen)
    after = next(
        (each for each in network_rails.read_network_rails(machine) if each.name == rail.name),
        network_rails.read_interface(machine, rail.name),
    )
    grown = tuple(network_rails.describe_error_growth(rail, after)) if after else ()
    return msgspec.structs.replace(seen, faults=seen.faults + grown)


def _test_rdma_loop(context: Context, seen: _RailInspection, tcp_port: int) -> _RailInspection:
    device, _, port = seen.rail.name.partition("/")
    context.note(f"{seen.rail.name}: data through its loopback")
    try:
        rate = rdma_loop.measure_rdma_loop(device, port, tcp_port)
    except OSError as error:
        return msgspec.structs.replace(seen, unsure=(*seen.unsure, str(error)))
    if rate is None:
        words = (
            f"{rdma_loop.RDMA_TOOL} is not installed, so nothing was sent through {seen.rail.name}; install perftest"
        )
        return msgspec.structs.replace(seen, remarks=(*seen.remarks, words))
    return msgspec.structs.replace(seen, figures=(*seen.figures, _build_rate_figure(rate, LOOP)))


def _test_gpu_memory(context: Context, machine: Machine, seen: _RailInspection, tcp_port: int) -> _RailInspection:
    host_rate = next((figure.value for figure in seen.figures if figure.setting == LOOP), None)
    uuids = {device.uuid for device in context.devices if not device.on_host}
    if host_rate is None or not uuids:
        return seen
    context.note(f"{seen.rail.name}: data through its loopback from the nearest GPU's memory")
    run = rail_gpu_memory.measure_gpu_rail(machine, seen.rail.name, uuids, tcp_port, host_rate)
    return msgspec.structs.replace(
        seen,
        gpu=run.gpu,
        figures=(*seen.figures, *filter(None, [run.figure])),
        remarks=(*seen.remarks, *filter(None, [run.remark])),
        wrong=(*seen.wrong, *filter(None, [run.wrong])),
        unsure=(*seen.unsure, *filter(None, [run.unsure])),
    )


def _test_peer_traffic(
    context: Context, seen: _RailInspection, peer: RailPeer, *, spoil: bool = False, slow_s: float = 0.0
) -> _RailInspection:
    context.note(f"{seen.rail.name}: data to {peer.where} and back")
    seconds = SECONDS_SHARE * context.seconds
    try:
        carried = rail_traffic.exchange_over_rail(
            seen.rail.interface, peer.address, seconds, spoil=spoil, slow_s=slow_s
        )
    except OSError as error:
        words = f"no answer from {peer.where}: {error}; the fault is at this end, the other end or in between"
        return msgspec.structs.replace(seen, unsure=(*seen.unsure, words))
    return msgspec.structs.replace(seen, carried=(*seen.carried, (peer, carried)))


def _judge_traffic(seen: _RailInspection) -> _RailInspection:
    """Judge the port by its traffic. If only one peer shows errors or a low rate, the cause may be the peer or the path."""
    wrong = tuple((peer, _describe_corruption(peer, carried)) for peer, carried in seen.carried if carried.wrong)
    slow = tuple(
        (peer, _describe_slow_rail(peer, carried)) for peer, carried in seen.carried if carried.rate < LEAST_GB_S
    )
    fast = len(slow) < len(seen.carried)
    for found, fails in ((wrong, _count_hosts(wrong) > 1), (slow, _count_hosts(slow) > 1 and not fast)):
        words = tuple(says for _, says in found)
        if fails:
            seen = msgspec.structs.replace(seen, faults=seen.faults + words)
        elif words:
            seen = msgspec.structs.replace(seen, unsure=(*seen.unsure, *words, WHOSE))
    if _count_hosts(seen.carried) < 2:
        return seen  # a rate that depends on the peer too must not count against this node
    best = max(carried.rate for _, carried in seen.carried)
    return msgspec.structs.replace(seen, figures=(*seen.figures, _build_rate_figure(best, "TCP, there and back")))


def _count_hosts(found: Sequence[tuple[RailPeer, object]]) -> int:
    return len({peer.address[0] for peer, _ in found})


def _describe_corruption(peer: RailPeer, carried: TrafficResult) -> str:
    return (
        f"{carried.wrong} of {carried.total} bytes came back wrong from {peer.where}, the first is byte {carried.first}"
    )


def _describe_slow_rail(peer: RailPeer, carried: TrafficResult) -> str:
    return f"carries {carried.rate:.2g} GB/s to {peer.where} and back, less than {LEAST_GB_S:g}"


def _build_rate_figure(value: float, setting: str) -> Figure:
    return Figure(name="rail_rate", value=round(value, 4), unit="GB/s", setting=setting)


def _compare_rails(seen: list[_RailInspection]) -> Iterator[Result]:
    """Each rail, and its loopback rates against those of other rails of its board."""
    for each in seen:
        faults = _describe_slow_loop(each, seen, "rail_rate", LOOP, "through its loopback")
        slow = _describe_slow_loop(each, seen, rail_gpu_memory.FIGURE, SAME_SWITCH, "from the nearest GPU's memory")
        slow = tuple(f"{words}; {rail_gpu_memory.ADVICE}" for words in slow)
        yield _build_result(msgspec.structs.replace(each, faults=each.faults + faults, slow=slow))


def _describe_slow_loop(
    each: _RailInspection, seen: Sequence[_RailInspection], name: str, setting: str, how: str
) -> tuple[str, ...]:
    """How one rail is slower than at least three others of its board; nothing if it is not."""
    rates = {o.rail.name: f.value for o in seen for f in o.figures if (f.name, f.setting) == (name, setting)}
    others = [
        rates[o.rail.name] for o in seen if o.rail.name in rates and o is not each and o.rail.board == each.rail.board
    ]
    mine = rates.get(each.rail.name)
    if mine is None or len(others) < network_rails.SIBLINGS_MIN or mine >= LOOP_SHARE * statistics.median(others):
        return ()
    return (f"carries {mine:.3g} GB/s {how}, ports of the same board {statistics.median(others):.3g}",)


def _build_result(seen: _RailInspection) -> Result:
    """The worst decides. A rate from GPU memory alone fails a port by limit, so only on a measured platform."""
    outcomes = (
        (Outcome.FAIL, seen.faults),
        (Outcome.NOT_RUN, seen.wrong),
        (Outcome.ERROR, seen.unsure),
        (Outcome.FAIL, seen.slow),
    )
    outcome = next((outcome for outcome, words in outcomes if words), Outcome.PASS)
    evidence: Evidence = {"kind": seen.rail.kind, "state": seen.rail.words}
    known = {"rate_gbps": seen.rail.rate, "pcie_width": seen.rail.width, "pcie_width_max": seen.rail.width_max}
    evidence |= {name: value for name, value in known.items() if value is not None}
    if seen.gpu is not None:
        evidence["gpu"] = seen.gpu.address
    if seen.carried:
        evidence["peers"] = "; ".join(
            f"{peer.where} {round_to_four_digits(carried.rate):g} GB/s" for peer, carried in seen.carried
        )
    return Result(
        test=TEST,
        outcome=outcome,
        device=seen.rail.name,
        reason="; ".join(seen.faults + seen.wrong + seen.unsure + seen.slow),
        figures=seen.figures,
        locations=(Location(nic=seen.rail.name),) if outcome is Outcome.FAIL else (),
        remarks=seen.remarks,
        evidence=evidence,
        misconfigured=outcome is Outcome.NOT_RUN,
        by_limit=outcome is Outcome.FAIL and not seen.faults,
    )


def _simulate_fault(context: Context) -> Iterator[Result]:
    """The injected fault on a simulated rail: data goes to two addresses of this process and back, which verifies the detection only."""
    rail = NetworkRail(name="pretended", kind="pretended", up=context.fault != "down", words="pretended")
    faults, _ = network_rails.judge_rail(rail, (rail,), (WantedRail(rail.name),))
    seen = _RailInspection(rail, tuple(faults))
    if rail.up:
        slow_s = SLOW_S if context.fault == "slow" else 0.0
        for host in ("127.0.0.1", "127.0.0.2"):
            with rail_traffic.run_echo_server((host, 0)) as address:
                seen = _test_peer_traffic(
                    context, seen, RailPeer(rail.name, address), spoil=context.fault == "corrupt", slow_s=slow_s
                )
        seen = _judge_traffic(seen)
    yield _build_result(seen)
