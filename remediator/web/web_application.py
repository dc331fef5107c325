"""The routes of the pages with their access checks, the error pages, and the page of a standby replica."""

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

STANDBY_FRESH_S = 3.0  # how long the leader's address is cached, because unauthenticated clients may ask for it
ABROAD = frozenset(
    {"cross-site", "same-site"}
)  # browsers do not send the session cookie when they follow a link from another site


class WebApplication:
    """The routes of one replica."""

    def __init__(
        self,
        config: Config,
        leader: Callable[[], LeaderAddress | None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`leader` returns the leader's address and may raise database errors; `now` is monotonic, in seconds."""
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

    async def show_standby(self, request: Request, word: str) -> Response:
        """The page of a standby replica, with the leader's address. `word` says why this replica does not lead."""
        values = {**bare_page_values(request, "Standby", 0.0), "cluster": self._config.cluster, "word": word}
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
                log.warning("%s: the database does not answer: %s", request.url.path, error)
                return _problem_page(request, 503, "The database does not answer.", "Reload the page in a moment")
            except Exception:
                log.exception("%s %s failed", request.method, request.url.path)
                return _problem_page(
                    request, 500, "The controller failed to render this page.", "See the controller's log"
                )

        return shown


class UnknownPageRoute(Route):
    """Matches unknown addresses opened in a browser; other clients get the API's error."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match what a browser opens, except paths of the API."""
        opened = scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}
        if not opened or scope["path"].startswith("/v1/") or "text/html" not in Headers(scope=scope).get("accept", ""):
            return Match.NONE, {}
        return super().matches(scope)


async def _unknown_page(_request: Request) -> Response:
    raise Refusal(404, "there is no such page", "use the search to find nodes, incidents and jobs by name")


async def _checked_form(request: Request, who: PageUser) -> dict[str, str]:
    if request.method != "POST":
        return {}
    if not is_own_form(request):
        raise Refusal(
            403, "the form was not sent by one of this controller's pages", "open the page and submit the form there"
        )
    return await read_own_form(request, who.secret)


def _redirect_to_login(request: Request) -> Response:
    """Redirect to the login. After a link from another site, reload first: the browser then sends its session cookie."""
    if request.method != "GET":
        return _problem_page(request, 401, "Your login has ended; nothing was changed.", "Log in and try again")
    target = local_redirect_path(request.url.path + (f"?{request.url.query}" if request.url.query else ""))
    if request.headers.get("sec-fetch-site") in ABROAD and request.headers.get("sec-fetch-mode") == "navigate":
        values = {**bare_page_values(request, "One moment", handler_context_of(request).clock.wall()), "target": target}
        return Response(
            template_rendering.render_page("redirect.html.j2", values),
            200,
            template_rendering.HEADERS,
            media_type="text/html",
        )
    return RedirectResponse(f"/login?{urlencode({'next': target})}", 303, template_rendering.HEADERS)


def _problem_page(
    request: Request, status: int, words: str, todo: str = "", headers: dict[str, str] | None = None
) -> Response:
    """An error page; it needs no API call, so it can always be rendered."""
    values = bare_page_values(request, f"{status}", handler_context_of(request).clock.wall())
    values |= {"words": words, "todo": todo, "code": status, "cluster": handler_context_of(request).config.cluster}
    text = template_rendering.render_page("problem.html.j2", values)
    return Response(text, status, {**template_rendering.HEADERS, **(headers or {})}, media_type="text/html")
