"""The table of all pages and form targets."""

from __future__ import annotations

from remediator.api.access_control import Access
from remediator.web import login_form
from remediator.web.page_entry import PageEntry
from remediator.web.pages import (
    alerts_page,
    audit_page,
    control_page,
    event_stream_page,
    fleet_page,
    incident_action_page,
    incident_list_page,
    incident_page,
    job_list_page,
    job_page,
    lemons_page,
    node_action_page,
    node_list_page,
    node_page,
    search_page,
    stragglers_page,
    work_queue_page,
)

PAGES: tuple[PageEntry, ...] = (
    PageEntry(path="/", handler=fleet_page.show_fleet_page, nav="Fleet", key="f"),
    PageEntry(path="/fleet.json", handler=fleet_page.send_fleet_picture),
    PageEntry(path="/nodes", handler=node_list_page.show_node_list, nav="Nodes", key="n"),
    PageEntry(path="/nodes/{node}", handler=node_page.show_node_page),
    PageEntry(
        path="/nodes/{node}/actions/{action}", handler=node_action_page.show_node_action_form, access=Access.OPERATOR
    ),
    PageEntry(
        path="/nodes/{node}/actions/{action}",
        handler=node_action_page.submit_node_action,
        access=Access.OPERATOR,
        method="POST",
    ),
    PageEntry(path="/incidents", handler=incident_list_page.show_incident_list, nav="Incidents", key="i"),
    PageEntry(path="/incidents/{incident}", handler=incident_page.show_incident_page),
    PageEntry(path="/incidents/{incident}/postmortem", handler=incident_page.show_incident_postmortem),
    PageEntry(
        path="/incidents/{incident}/evidence/{order:path}",
        handler=incident_page.download_evidence_bundle,
        access=Access.OPERATOR,
    ),
    PageEntry(
        path="/incidents/{incident}/actions/{action}",
        handler=incident_action_page.show_incident_action_form,
        access=Access.OPERATOR,
    ),
    PageEntry(
        path="/incidents/{incident}/actions/{action}",
        handler=incident_action_page.submit_incident_action,
        access=Access.OPERATOR,
        method="POST",
    ),
    PageEntry(path="/work", handler=work_queue_page.show_work_queue, nav="Approvals", key="p"),
    PageEntry(
        path="/work/cancel", handler=work_queue_page.submit_action_cancellation, access=Access.OPERATOR, method="POST"
    ),
    PageEntry(path="/jobs", handler=job_list_page.show_job_list, nav="Jobs", key="j"),
    PageEntry(path="/jobs/{job:path}", handler=job_page.show_job_page),
    PageEntry(path="/stragglers", handler=stragglers_page.show_stragglers_page, nav="Stragglers", key="s"),
    PageEntry(path="/lemons", handler=lemons_page.show_lemons_page, nav="Lemons", key="l"),
    PageEntry(path="/alerts", handler=alerts_page.show_alerts_page, nav="Alerts", key="t"),
    PageEntry(path="/alerts/silences", handler=alerts_page.submit_silence, access=Access.OPERATOR, method="POST"),
    PageEntry(
        path="/alerts/silences/end", handler=alerts_page.submit_silence_end, access=Access.OPERATOR, method="POST"
    ),
    PageEntry(path="/alerts/test", handler=alerts_page.submit_test_alert, access=Access.OPERATOR, method="POST"),
    PageEntry(path="/audit", handler=audit_page.show_audit_page, nav="Audit", key="a"),
    PageEntry(path="/control", handler=control_page.show_control_page, nav="Mode", key="m"),
    PageEntry(path="/control/mode", handler=control_page.submit_mode, access=Access.OPERATOR, method="POST"),
    PageEntry(
        path="/control/breaker", handler=control_page.submit_breaker_reset, access=Access.OPERATOR, method="POST"
    ),
    PageEntry(path="/search", handler=search_page.show_search_page),
    PageEntry(path="/live", handler=event_stream_page.follow_event_stream),
    PageEntry(path="/logout", handler=login_form.submit_logout, method="POST"),
)
