"""The pages' routes behind their rules, how their errors look, and what a replica shows that does not lead."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlencode

from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from remediator.api.access import enter
from remediator.api.service import Refusal, refuse_nul, service_of
from remediator.config import Config
from remediator.store.database import StoreError
from remediator.store.whereabouts import Whereabouts
from remediator.web import login, rendering, static
from remediator.web.origin import path_here
from remediator.web.page import Page
from remediator.web.people import Person, from_here, person
from remediator.web.routes import PAGES
from remediator.web.visit import Link, Visit, bare, form_of

log = logging.getLogger(__name__)

STANDBY_FRESH_S = 3.0  # so long the leader's whereabouts are good for all who ask; anybody may ask
ABROAD = frozenset({"cross-site", "same-site"})  # the browser keeps the session back on a link from another site


class Web:
    """The routes of one replica."""

    def __init__(
        self,
        config: Config,
        leader: Callable[[], Whereabouts | None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`leader` says where the leader is, and may raise what the database raises; `now` is monotonic, in seconds."""
        self._config = config
        self._leader = leader
        self._now = now
        self._one_at_a_time = asyncio.Lock()
        self._found: tuple[float, Whereabouts | None] | None = None
        self._links = tuple(Link(page.path, page.nav, page.key) for page in PAGES if page.nav)
        self.always: Sequence[BaseRoute] = (static.ROUTE,)
        self.leading: Sequence[BaseRoute] = (
            static.ROUTE,
            Route("/login", self._refusals_shown(login.show), methods=["GET"]),
            Route("/login", self._refusals_shown(login.enter), methods=["POST"]),
            *(self._route(page) for page in PAGES),
            Nowhere("/{path:path}", self._refusals_shown(_nowhere), methods=["GET"]),
        )

    async def standing_by(self, request: Request, word: str) -> Response:
        """Where to go instead."""
        values = {**bare(request, "Standing by", 0.0), "cluster": self._config.cluster, "word": word}
        values["leader"] = await self._whereabouts()
        headers = {**rendering.HEADERS, "retry-after": "5"}
        return Response(rendering.render("standby.html.j2", values), 503, headers, media_type="text/html")

    async def _whereabouts(self) -> Whereabouts | None:
        async with self._one_at_a_time:
            if self._found is None or self._now() - self._found[0] >= STANDBY_FRESH_S:
                try:
                    where = await asyncio.to_thread(self._leader)
                except SQLAlchemyError:
                    where = None
                self._found = self._now(), where
            return self._found[1]

    def _route(self, page: Page) -> Route:
        async def guarded(request: Request) -> Response:
            who = person(request)
            if who is None:
                return _stranger(request)
            request.state.holds = who.holds
            enter(request, page.access, who.identity)
            return await page.handler(Visit(request, who, self._links, await _form(request, who)))

        return Route(page.path, self._refusals_shown(guarded), methods=[page.method])

    def _refusals_shown(self, handler: login.Handler) -> login.Handler:
        async def shown(request: Request) -> Response:
            try:
                refuse_nul(request)
                return await handler(request)
            except Refusal as refusal:
                words, todo = refusal.problem.error, refusal.problem.todo
                return _problem(request, refusal.status, words, todo, refusal.headers)
            except HTTPException as error:
                return _problem(request, error.status_code, str(error.detail))
            except (SQLAlchemyError, StoreError) as error:
                log.warning("%s: the database cannot be asked: %s", request.url.path, error)
                return _problem(request, 503, "The database cannot be asked now.", "Load the page again in a moment.")
            except Exception:
                log.exception("%s %s failed", request.method, request.url.path)
                return _problem(request, 500, "The remediator failed on this page.", "Its log says why.")

        return shown


class Nowhere(Route):
    """A browser's address that leads nowhere. Whoever asks for something else than a page gets the API's words."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Only what a browser opens, and nothing of the API's."""
        opened = scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}
        if not opened or scope["path"].startswith("/v1/") or "text/html" not in Headers(scope=scope).get("accept", ""):
            return Match.NONE, {}
        return super().matches(scope)


async def _nowhere(_request: Request) -> Response:
    raise Refusal(404, "there is no such page", "the search finds nodes, incidents and jobs by name")


async def _form(request: Request, who: Person) -> dict[str, str]:
    if request.method != "POST":
        return {}
    if not from_here(request):
        raise Refusal(403, "this was not sent by one of our own pages", "open the page here and send it from there")
    return await form_of(request, who.secret)


def _stranger(request: Request) -> Response:
    """To the login; a browser that came by a link from elsewhere is asked once more, and then shows its session."""
    if request.method != "GET":
        return _problem(request, 401, "You are not logged in any more; nothing was changed.", "Log in and try again.")
    target = path_here(request.url.path + (f"?{request.url.query}" if request.url.query else ""))
    if request.headers.get("sec-fetch-site") in ABROAD and request.headers.get("sec-fetch-mode") == "navigate":
        values = {**bare(request, "One moment", service_of(request).clock.wall()), "target": target}
        return Response(rendering.render("again.html.j2", values), 200, rendering.HEADERS, media_type="text/html")
    return RedirectResponse(f"/login?{urlencode({'next': target})}", 303, rendering.HEADERS)


def _problem(
    request: Request, status: int, words: str, todo: str = "", headers: dict[str, str] | None = None
) -> Response:
    """An error as a page. It asks nothing of anybody, so that it can always be shown."""
    values = bare(request, f"{status}", service_of(request).clock.wall())
    values |= {"words": words, "todo": todo, "code": status, "cluster": service_of(request).config.cluster}
    text = rendering.render("problem.html.j2", values)
    return Response(text, status, {**rendering.HEADERS, **(headers or {})}, media_type="text/html")
