from __future__ import annotations

import asyncio
import time

from remediator.api.latency_histogram import LAG_EVERY_S, measure_event_loop_lag


def test_a_loop_that_is_blocked_counts_how_long() -> None:
    async def find_first_lag() -> float:
        first = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(measure_event_loop_lag(lambda lag_s: first.done() or first.set_result(lag_s)))
        await asyncio.sleep(0)  # it waits for its timer now
        time.sleep(LAG_EVERY_S + 0.2)  # noqa: ASYNC251 - what is to be noticed
        found: float = await first
        task.cancel()
        return found

    assert asyncio.run(find_first_lag()) >= 0.2
