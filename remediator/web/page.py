"""A row of the table of pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response

from remediator.api.access import Access
from remediator.web.visit import Visit

Handler = Callable[[Visit], Awaitable[Response]]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """`nav` is its name in the navigation (empty: not there), `key` what follows `g` on the keyboard."""

    path: str
    handler: Handler
    method: str = "GET"
    access: Access = Access.VIEWER
    nav: str = ""
    key: str = ""
