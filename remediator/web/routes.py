"""Every page, in one table."""

from __future__ import annotations

from remediator.api.access import Access
from remediator.web import login
from remediator.web.page import Page
from remediator.web.pages import (
    alerts,
    audit,
    control,
    deeds,
    fleet,
    incident,
    incident_deeds,
    incidents,
    job,
    jobs,
    lemons,
    live,
    node,
    nodes,
    search,
    stragglers,
    work,
)

PAGES: tuple[Page, ...] = (
    Page(path="/", handler=fleet.show, nav="Fleet", key="f"),
    Page(path="/fleet.json", handler=fleet.picture),
    Page(path="/nodes", handler=nodes.show, nav="Nodes", key="n"),
    Page(path="/nodes/{node}", handler=node.show),
    Page(path="/nodes/{node}/deeds/{deed}", handler=deeds.ask, access=Access.OPERATOR),
    Page(path="/nodes/{node}/deeds/{deed}", handler=deeds.do, access=Access.OPERATOR, method="POST"),
    Page(path="/incidents", handler=incidents.show, nav="Incidents", key="i"),
    Page(path="/incidents/{incident}", handler=incident.show),
    Page(path="/incidents/{incident}/postmortem", handler=incident.postmortem),
    Page(path="/incidents/{incident}/evidence/{order:path}", handler=incident.bundle, access=Access.OPERATOR),
    Page(path="/incidents/{incident}/deeds/{deed}", handler=incident_deeds.ask, access=Access.OPERATOR),
    Page(path="/incidents/{incident}/deeds/{deed}", handler=incident_deeds.do, access=Access.OPERATOR, method="POST"),
    Page(path="/work", handler=work.show, nav="Approvals", key="p"),
    Page(path="/work/cancel", handler=work.cancel, access=Access.OPERATOR, method="POST"),
    Page(path="/jobs", handler=jobs.show, nav="Jobs", key="j"),
    Page(path="/jobs/{job:path}", handler=job.show),
    Page(path="/stragglers", handler=stragglers.show, nav="Stragglers", key="s"),
    Page(path="/lemons", handler=lemons.show, nav="Lemons", key="l"),
    Page(path="/alerts", handler=alerts.show, nav="Alerts", key="t"),
    Page(path="/alerts/silences", handler=alerts.silence, access=Access.OPERATOR, method="POST"),
    Page(path="/alerts/silences/end", handler=alerts.end, access=Access.OPERATOR, method="POST"),
    Page(path="/alerts/test", handler=alerts.test, access=Access.OPERATOR, method="POST"),
    Page(path="/audit", handler=audit.show, nav="Audit", key="a"),
    Page(path="/control", handler=control.show, nav="Mode", key="m"),
    Page(path="/control/mode", handler=control.set_mode, access=Access.OPERATOR, method="POST"),
    Page(path="/control/breaker", handler=control.reset_breaker, access=Access.OPERATOR, method="POST"),
    Page(path="/search", handler=search.show),
    Page(path="/live", handler=live.follow),
    Page(path="/logout", handler=login.leave, method="POST"),
)
