"""The stream that open pages follow: for whom a session names, as long as it holds, and no longer than they read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remediator.api import event_stream
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.web.node_reports import report
from tests.unit.remediator.web.simulated_browser import Browser

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def _never_looks_up_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT_S", 1e9)


class Reader:
    """An open stream."""

    def __init__(self, centre: Inside, browser: Browser) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.news = asyncio.Event()
        cookie = "; ".join(f"{k}={v}" for k, v in browser.cookies.items())
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": "/live",
            "query_string": b"",
            "headers": [(b"cookie", cookie.encode())],
            "client": ("192.0.2.7", 1),
        }
        self._app = centre.app

    async def read(self) -> None:
        await self._app(self._scope, self._receive, self._send)

    async def until(self, words: bytes) -> None:
        while not any(words in m.get("body", b"") for m in self.sent):
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), PATIENCE_S)

    async def _receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        self.news.set()


def on_its_loop(centre: Inside, work: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(work, centre._loop).result(2 * PATIENCE_S)


def test_whoever_left_gives_the_seat_back_at_once(shared: Inside) -> None:
    browser = Browser(shared).log_in("vic")

    async def pages_in_turn() -> None:
        for _ in range(shared.config.limits.streams_per_person + 2):
            reader = Reader(shared, browser)
            reading = asyncio.create_task(reader.read())
            await reader.until(b"retry:")
            reader.gone.set()
            await asyncio.wait_for(reading, PATIENCE_S)

    on_its_loop(shared, pages_in_turn())


def test_what_happens_is_told_and_a_logout_ends_it(shared: Inside) -> None:
    browser = Browser(shared).log_in("ann")

    async def open_one() -> tuple[Reader, asyncio.Task[None]]:
        reader = Reader(shared, browser)
        reading = asyncio.create_task(reader.read())
        await reader.until(b"retry:")
        return reader, reading

    reader, reading = on_its_loop(shared, open_one())
    report(shared, "n2")
    on_its_loop(shared, reader.until(b"n2 reported for the first time"))
    browser.post("/logout", {"csrf": browser.csrf()})
    report(shared, "n1")  # something happens, and is no news to them any more

    async def ended() -> None:
        await asyncio.wait_for(reading, PATIENCE_S)

    on_its_loop(shared, ended())
    assert not any(b"n1 reported" in m.get("body", b"") for m in reader.sent)


def test_a_logout_ends_it_although_nothing_else_happens(tmp_path: Path) -> None:
    centre = Inside(tmp_path)
    try:
        browser = Browser(centre).log_in("ann")
        csrf = browser.csrf()

        async def open_one() -> asyncio.Task[None]:
            reader = Reader(centre, browser)
            reading = asyncio.create_task(reader.read())
            await reader.until(b"retry:")
            return reading

        async def ended(reading: asyncio.Task[None]) -> None:
            await asyncio.wait_for(reading, PATIENCE_S)

        reading = on_its_loop(centre, open_one())
        assert browser.post("/logout", {"csrf": csrf}).status == 303
        on_its_loop(centre, ended(reading))
    finally:
        centre.close()
