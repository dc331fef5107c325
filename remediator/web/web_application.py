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

from remediator.api.access_control import admit_identity
from remediator.api.handler_context import Refusal, handler_context_of, refuse_nul_characters
from remediator.config import Config
from remediator.store.database import StoreError
from remediator.store.leader_address import LeaderAddress
from remediator.web import login_form, static_files, template_rendering
from remediator.web.csrf_protection import local_redirect_path
from remediator.web.page_authentication import PageUser, authenticate_page_user, is_own_form
from remediator.web.page_entry import PageEntry
from remediator.web.page_request import NavigationLink, PageRequest, bare_page_values, read_own_form
from remediator.web.page_routes import PAGES

log = logging.getLogger(__name__)

STANDBY_FRESH_S = 3.0  # so long the leader's whereabouts are good for all who ask; anybody may ask
ABROAD = frozenset({"cross-site", "same-site"})  # the browser keeps the session back on a link from another site


class WebApplication:
    """The routes of one replica."""

    def __init__(
        self,
        config: Config,
        leader: Callable[[], LeaderAddress | None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`leader` says where the leader is, and may raise what the database raises; `now` is monotonic, in seconds."""
        self._config = config
        self._leader = leader
        self._now = now
        self._one_at_a_time = asyncio.Lock()
        self._found: tuple[float, LeaderAddress | None] | None = None
        self._links = tuple(NavigationLink(page.path, page.nav, page.key) for page in PAGES if page.nav)
        self.always: Sequence[BaseRoute] = (static_files.ROUTE,)
        self.leading: Sequence[BaseRoute] = (
            static_files.ROUTE,
            Route("/login", self._refusals_shown(login_form.show_login), methods=["GET"]),
            Route("/login", self._refusals_shown(login_form.submit_login), methods=["POST"]),
            *(self._route(page) for page in PAGES),
            UnknownPageRoute("/{path:path}", self._refusals_shown(_unknown_page), methods=["GET"]),
        )

    async def standing_by(self, request: Request, word: str) -> Response:
        """Where to go instead."""
        values = {**bare_page_values(request, "Standing by", 0.0), "cluster": self._config.cluster, "word": word}
        values["leader"] = await self._whereabouts()
        headers = {**template_rendering.HEADERS, "retry-after": "5"}
        return Response(template_rendering.render_page("standby.html.j2", values), 503, headers, media_type="text/html")

    async def _whereabouts(self) -> LeaderAddress | None:
        async with self._one_at_a_time:
            if self._found is None or self._now() - self._found[0] >= STANDBY_FRESH_S:
                try:
                    where = await asyncio.to_thread(self._leader)
                except SQLAlchemyError:
                    where = None
                self._found = self._now(), where
            return self._found[1]

    def _route(self, page: PageEntry) -> Route:
        async def guarded(request: Request) -> Response:
            who = authenticate_page_user(request)
            if who is None:
                return _redirect_to_login(request)
            request.state.holds = who.holds
            admit_identity(request, page.access, who.identity)
            return await page.handler(PageRequest(request, who, self._links, await _checked_form(request, who)))

        return Route(page.path, self._refusals_shown(guarded), methods=[page.method])

    def _refusals_shown(self, handler: login_form.Handler) -> login_form.Handler:
        async def shown(request: Request) -> Response:
            try:
                refuse_nul_characters(request)
                return await handler(request)
            except Refusal as refusal:
                words, todo = refusal.problem.error, refusal.problem.todo
                return _problem_page(request, refusal.status, words, todo, refusal.headers)
            except HTTPException as error:
                return _problem_page(request, error.status_code, str(error.detail))
            except (SQLAlchemyError, StoreError) as error:
                log.warning("%s: the database cannot be asked: %s", request.url.path, error)
                return _problem_page(
                    request, 503, "The database cannot be asked now.", "Load the page again in a moment."
                )
            except Exception:
                log.exception("%s %s failed", request.method, request.url.path)
                return _problem_page(request, 500, "The remediator failed on this page.", "Its log says why.")

        return shown


class UnknownPageRoute(Route):
    """A browser's address that leads nowhere. Whoever asks for something else than a page gets the API's words."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Only what a browser opens, and nothing of the API's."""
        opened = scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}
        if not opened or scope["path"].startswith("/v1/") or "text/html" not in Headers(scope=scope).get("accept", ""):
            return Match.NONE, {}
        return super().matches(scope)


async def _unknown_page(_request: Request) -> Response:
    raise Refusal(404, "there is no such page", "the search finds nodes, incidents and jobs by name")


async def _checked_form(request: Request, who: PageUser) -> dict[str, str]:
    if request.method != "POST":
        return {}
    if not is_own_form(request):
        raise Refusal(403, "this was not sent by one of our own pages", "open the page here and send it from there")
    return await read_own_form(request, who.secret)


def _redirect_to_login(request: Request) -> Response:
    """To the login; a browser that came by a link from elsewhere is asked once more, and then shows its session."""
    if request.method != "GET":
        return _problem_page(
            request, 401, "You are not logged in any more; nothing was changed.", "Log in and try again."
        )
    target = local_redirect_path(request.url.path + (f"?{request.url.query}" if request.url.query else ""))
    if request.headers.get("sec-fetch-site") in ABROAD and request.headers.get("sec-fetch-mode") == "navigate":
        values = {**bare_page_values(request, "One moment", handler_context_of(request).clock.wall()), "target": target}
        return Response(
            template_rendering.render_page("again.html.j2", values),
            200,
            template_rendering.HEADERS,
            media_type="text/html",
        )
    return RedirectResponse(f"/login?{urlencode({'next': target})}", 303, template_rendering.HEADERS)


def _problem_page(
    request: Request, status: int, words: str, todo: str = "", headers: dict[str, str] | None = None
) -> Response:
    """An error as a page. It asks nothing of anybody, so that it can always be shown."""
    values = bare_page_values(request, f"{status}", handler_context_of(request).clock.wall())
    values |= {"words": words, "todo": todo, "code": status, "cluster": handler_context_of(request).config.cluster}
    text = template_rendering.render_page("problem.html.j2", values)
    return Response(text, status, {**template_rendering.HEADERS, **(headers or {})}, media_type="text/html")
