"""One row of the table of pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response

from remediator.api.access_control import Access
from remediator.web.page_request import PageRequest

Handler = Callable[[PageRequest], Awaitable[Response]]


class PageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One page or form target. `nav` is its name in the navigation (empty: none), `key` its shortcut after `g`."""

    path: str
    handler: Handler
    method: str = "GET"
    access: Access = Access.VIEWER
    nav: str = ""
    key: str = ""
