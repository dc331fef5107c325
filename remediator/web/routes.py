"""Every page, in one table."""

from __future__ import annotations

from remediator.api.access import Access
from remediator.web import login
from remediator.web.page import Page
from remediator.web.pages import deeds, fleet, live, node, nodes, search

PAGES: tuple[Page, ...] = (
    Page(path="/", handler=fleet.show, nav="Fleet", key="f"),
    Page(path="/fleet.json", handler=fleet.picture),
    Page(path="/nodes", handler=nodes.show, nav="Nodes", key="n"),
    Page(path="/nodes/{node}", handler=node.show),
    Page(path="/nodes/{node}/deeds/{deed}", handler=deeds.ask, access=Access.OPERATOR),
    Page(path="/nodes/{node}/deeds/{deed}", handler=deeds.do, access=Access.OPERATOR, method="POST"),
    Page(path="/search", handler=search.show),
    Page(path="/live", handler=live.follow),
    Page(path="/logout", handler=login.leave, method="POST"),
)
