"""Measures how late the event loop is. Latencies that begin when a request is read do not show how long it waited before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

EVERY_S = 0.1


async def measure_event_loop_lag(count: Callable[[float], None]) -> None:
    """Pass the lag of the running loop to `count` ten times a second, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + EVERY_S
        await asyncio.sleep(EVERY_S)
        count(max(0.0, loop.time() - due))
