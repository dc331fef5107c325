"""A poll turns round for what concerns its node, a follower for everything, all of them when it is over."""

from __future__ import annotations

import asyncio

from remediator.api.handler_context import LongPollWakeups


def test_who_is_woken_by_what() -> None:
    async def run() -> None:
        wakeups = LongPollWakeups()
        wakeups.bind(asyncio.get_running_loop())
        with (
            wakeups.subscription("n1") as one,
            wakeups.subscription("n1") as again,
            wakeups.subscription("n2") as two,
            wakeups.subscription() as follower,
        ):
            for nodes, woken in ((["n1", "n9"], (1, 1, 0, 1)), ([], (0, 0, 0, 1)), (None, (1, 1, 1, 1))):
                events = (one, again, two, follower)
                for event in events:
                    event.clear()
                wakeups.wake(nodes)
                await asyncio.sleep(0)
                assert tuple(event.is_set() for event in events) == woken
            two.clear()
            wakeups.end()
            await asyncio.sleep(0)
            assert two.is_set()
            assert wakeups.ended
        wakeups.wake()
        await asyncio.sleep(0)

    asyncio.run(run())
