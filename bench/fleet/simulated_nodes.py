"""The process of the pretended nodes, started with a file of options."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import sys
import time
from collections.abc import Coroutine
from pathlib import Path

import msgspec
import uvloop

from bench.fleet.balancer import Balancer
from bench.fleet.malformed_clients import Malformed
from bench.fleet.node_reports import Node
from bench.fleet.options import Options
from bench.fleet.order_polls import Poll
from bench.fleet.outcome import Outcome
from bench.fleet.slow_clients import Dripping

LOOK_S = 0.01
TOLD_WITHIN_S = 60.0  # after the load: what is not acknowledged yet is told again


async def load_fleet(options: Options, outcome: Outcome) -> None:
    """All of it, for as long as the options say; then until the last change is acknowledged."""
    balancer = Balancer(options.ports, _trust(options))
    nodes = [Node(number, options, balancer, outcome) for number in range(options.nodes)]
    polls = [Poll(n, options, balancer, outcome) for n in range(options.polls)]
    odd = [Dripping(n, balancer, outcome).run() for n in range(options.slow)]
    odd += [Malformed(n, balancer, outcome).run() for n in range(options.malformed)]
    delays: list[float] = []
    begun = time.monotonic()
    fleet = [*(node.run() for node in nodes), *(poll.run() for poll in polls)]
    tasks = [asyncio.create_task(each) for each in (*fleet, *odd, balancer.watch(), _own_delay(delays))]
    bursting = asyncio.create_task(_burst(nodes[: options.burst], options.burst_at))
    await asyncio.sleep(options.seconds)
    delays.sort()
    outcome.tally.own_delay_s = tuple(delays[int(share * (len(delays) - 1))] for share in (0.5, 0.99, 1.0))
    while time.monotonic() < begun + options.seconds + TOLD_WITHIN_S and not _all_acknowledged(outcome):  # noqa: ASYNC110 - seldom
        await asyncio.sleep(LOOK_S)
    outcome.tally.gaps = balancer.gaps
    await _end([*tasks, bursting])


async def _own_delay(delays: list[float]) -> None:
    """How late this process itself is: where it is, the controller's answers look late that were not."""
    while True:
        due = time.monotonic() + LOOK_S
        await asyncio.sleep(LOOK_S)
        delays.append(time.monotonic() - due)


async def _burst(nodes: list[Node], at_s: float) -> None:
    if at_s >= 0:
        await asyncio.sleep(at_s)
        for node in nodes:
            node.breaks()


def _all_acknowledged(outcome: Outcome) -> bool:
    return all(sent.acknowledged for sent in outcome.tally.findings.values())


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    failed = [task for task in tasks if task.done() and not task.cancelled() and task.exception() is not None]
    left = set(tasks)
    while left:  # a task may miss it: `wait_for` of Python 3.11 swallows one that comes together with the answer
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=1.0)
    for task in failed:  # a fault of the generator must not look like a quiet fleet
        raise task.exception() or AssertionError


def _trust(options: Options) -> ssl.SSLContext | None:
    return ssl.create_default_context(cafile=options.certificate) if options.certificate else None


def run_event_loop(what: Coroutine[None, None, None]) -> None:
    """Run it on the fast loop."""
    with contextlib.closing(uvloop.new_event_loop()) as loop:
        loop.run_until_complete(what)


def main() -> None:
    """Load the controller, and write what came of it."""
    options = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Options)
    gc.disable()  # this process's own pauses would be told as the controller's
    outcome = Outcome()
    run_event_loop(load_fleet(options, outcome))
    outcome.write(Path(options.place))


if __name__ == "__main__":
    main()
