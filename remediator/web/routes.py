"""Every page, in one table."""

from __future__ import annotations

from remediator.web import login
from remediator.web.page import Page
from remediator.web.pages import fleet, live, search

PAGES: tuple[Page, ...] = (
    Page(path="/", handler=fleet.show, nav="Fleet", key="f"),
    Page(path="/search", handler=search.show),
    Page(path="/live", handler=live.follow),
    Page(path="/logout", handler=login.leave, method="POST"),
)
