"""The whole cluster: what is broken, what blocks automation, which nodes are out."""

from __future__ import annotations

from dashboards.board_layout import CLUSTER, INCIDENT_PAGE, NODE_BOARD, Board, Section, query_new_xids
from dashboards.panels import (
    GREEN,
    HALF,
    ORANGE,
    RED,
    THIRD,
    Column,
    Query,
    build_stat_panel,
    build_table_panel,
    build_time_series,
)

YES_NO = {0.0: ("NO", RED), 1.0: ("yes", GREEN)}

BLOCKED = Section(
    "Automation status",
    (
        build_stat_panel(
            "Leader",
            "Whether a controller replica leads and may act. Without a leader, no decisions are made; training continues.",
            "",
            Query(f"max(remediator_leading{{{CLUSTER}}})"),
            words=YES_NO,
        ),
        build_stat_panel(
            "Mode",
            "Level of automation: observe, recommend, approve or act. Only act executes actions without a person.",
            "",
            Query(f"remediator_mode{{{CLUSTER}}} == 1", "{{mode}}"),
        ),
        build_stat_panel(
            "Breaker",
            "Open: no further node is isolated until an operator resets the breaker (healthctl breaker).",
            "",
            Query(f"max(remediator_breaker_open{{{CLUSTER}}})"),
            words={0.0: ("closed", GREEN), 1.0: ("OPEN", RED)},
        ),
        build_stat_panel(
            "Database writable",
            "If not, the controller neither acknowledges findings nor acts; nodes keep their findings.",
            "",
            Query(f"min(remediator_store_writable{{{CLUSTER}}})"),
            words=YES_NO,
        ),
        build_stat_panel(
            "Waiting for approval",
            "Incidents whose next step needs an operator's approval.",
            "short",
            Query(f'sum(remediator_incidents_answered{{{CLUSTER},answer="approve"}})'),
            (None, GREEN),
            (1, ORANGE),
        ),
        build_stat_panel(
            "Silent nodes",
            "Nodes whose last report is overdue. They count as unknown, never as healthy.",
            "short",
            Query(f'sum(remediator_nodes_reporting{{{CLUSTER},health="unknown"}})'),
            (None, GREEN),
            (1, ORANGE),
            (10, RED),
        ),
    ),
)

BROKEN = Section(
    "Active problems",
    (
        build_table_panel(
            "Open incidents",
            "Newest first. Click an incident to see its decisions, their reasons, and the next steps.",
            f"remediator_incident_opened_timestamp_seconds{{{CLUSTER}}} * 1000",
            Column("Value", "Opened", "dateTimeFromNow"),
            Column("node", "Node", link=NODE_BOARD),
            Column("title", "What"),
            Column("incident", "Incident", link=INCIDENT_PAGE),
            Column("drill", "Drill"),
        ),
        build_table_panel(
            "Nodes that are not healthy",
            "Lifecycle state, since when, and whether the controller holds the node out of service.",
            f"remediator_node_since_timestamp_seconds{{{CLUSTER}}} * 1000",
            Column("Value", "Since", "dateTimeFromNow"),
            Column("node", "Node", link=NODE_BOARD),
            Column("state", "State"),
            Column("held", "Held by controller"),
            Column("rack", "Rack"),
            span=HALF,
        ),
        build_table_panel(
            "Active findings",
            "Findings of nodes and of the controller, over all nodes.",
            f"sum by (check, code, severity, drill) (remediator_findings_active{{{CLUSTER}}})",
            Column("Value", "Findings", "short"),
            Column("check", "Check"),
            Column("code", "Code"),
            Column("severity", "Severity"),
            Column("drill", "Drill"),
            span=HALF,
        ),
    ),
)

COURSE = Section(
    "Trends",
    (
        build_time_series(
            "Nodes by state",
            "Lifecycle states. The total is the cluster size.",
            "short",
            Query(f"sum by (state) (remediator_nodes{{{CLUSTER}}}) > 0", "{{state}}"),
            stacked=True,
        ),
        build_time_series(
            "Nodes by self-reported health",
            "Self-reported health. Silent nodes are unknown.",
            "short",
            Query(f"sum by (health) (remediator_nodes_reporting{{{CLUSTER}}})", "{{health}}"),
            stacked=True,
        ),
        build_time_series(
            "Xids within the last hour",
            "By code and in total. `healthctl xid explain CODE` explains a code.",
            "short",
            Query(f'sum(increase(healthd_gpu_xids_total{{{CLUSTER},injected="false"}}[1h]))', "all"),
            Query(query_new_xids("code", f'{CLUSTER},injected="false"'), "Xid {{code}}"),
            span=THIRD,
        ),
        build_time_series(
            "Hottest nodes",
            "The hottest GPU of each of the ten hottest nodes.",
            "celsius",
            Query(f"topk(10, node:healthd_gpu_temperature_celsius:max{{{CLUSTER}}})", "{{node}}"),
            span=THIRD,
        ),
        build_time_series(
            "Agents scraped and reporting",
            "Nodes whose healthd is scraped by Prometheus, compared with nodes that report to the controller.",
            "short",
            Query(f"count(healthd_build_info{{{CLUSTER}}})", "scraped"),
            Query(f'sum(remediator_nodes_reporting{{{CLUSTER},health!="unknown"}})', "reporting"),
            span=THIRD,
        ),
    ),
)

BOARD = Board(
    "fleet",
    "Fleet",
    "Active problems in the cluster, automation status, and nodes out of service.",
    (BLOCKED, BROKEN, COURSE),
    links=(("Status page", "${web}/"),),
)
