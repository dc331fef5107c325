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
    "Does automation work?",
    (
        build_stat_panel(
            "Leader",
            "Whether a replica of the centre leads and may act. Without one nothing is decided; training goes on.",
            "",
            Query(f"max(remediator_leading{{{CLUSTER}}})"),
            words=YES_NO,
        ),
        build_stat_panel(
            "Mode",
            "How far automation may go: observe, recommend, approve or act. Only act does things by itself.",
            "",
            Query(f"remediator_mode{{{CLUSTER}}} == 1", "{{mode}}"),
        ),
        build_stat_panel(
            "Breaker",
            "Open: nothing more is isolated until a person closes it (healthctl breaker).",
            "",
            Query(f"max(remediator_breaker_open{{{CLUSTER}}})"),
            words={0.0: ("closed", GREEN), 1.0: ("OPEN", RED)},
        ),
        build_stat_panel(
            "Database takes writes",
            "Without it nothing is acknowledged and nothing acted upon; nodes keep their findings.",
            "",
            Query(f"min(remediator_store_writable{{{CLUSTER}}})"),
            words=YES_NO,
        ),
        build_stat_panel(
            "Waiting for approval",
            "Incidents whose next step waits for a person's word.",
            "short",
            Query(f'sum(remediator_incidents_answered{{{CLUSTER},answer="approve"}})'),
            (None, GREEN),
            (1, ORANGE),
        ),
        build_stat_panel(
            "Silent nodes",
            "Nodes whose last word is older than they promised: unknown, never healthy.",
            "short",
            Query(f'sum(remediator_nodes_reporting{{{CLUSTER},health="unknown"}})'),
            (None, GREEN),
            (1, ORANGE),
            (10, RED),
        ),
    ),
)

BROKEN = Section(
    "What is broken?",
    (
        build_table_panel(
            "Open incidents",
            "Newest first. A click on the incident shows what was decided, why, and what comes next.",
            f"remediator_incident_opened_timestamp_seconds{{{CLUSTER}}} * 1000",
            Column("Value", "Opened", "dateTimeFromNow"),
            Column("node", "Node", link=NODE_BOARD),
            Column("title", "What"),
            Column("incident", "Incident", link=INCIDENT_PAGE),
            Column("drill", "Drill"),
        ),
        build_table_panel(
            "Nodes that are not healthy",
            "Where they stand in their life, since when, and whether we hold them out of service.",
            f"remediator_node_since_timestamp_seconds{{{CLUSTER}}} * 1000",
            Column("Value", "Since", "dateTimeFromNow"),
            Column("node", "Node", link=NODE_BOARD),
            Column("state", "State"),
            Column("held", "Held by us"),
            Column("rack", "Rack"),
            span=HALF,
        ),
        build_table_panel(
            "Active findings",
            "What nodes and the centre find, over all nodes.",
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
    "Course",
    (
        build_time_series(
            "Nodes by state",
            "Where nodes stand in their life. All of them together are the cluster.",
            "short",
            Query(f"sum by (state) (remediator_nodes{{{CLUSTER}}}) > 0", "{{state}}"),
            stacked=True,
        ),
        build_time_series(
            "Nodes by their own word",
            "What each node says of itself; unknown are those that say nothing.",
            "short",
            Query(f"sum by (health) (remediator_nodes_reporting{{{CLUSTER}}})", "{{health}}"),
            stacked=True,
        ),
        build_time_series(
            "Xids within the last hour",
            "By code, and all codes together; `healthctl xid explain CODE` says what one means.",
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
            "Agents that are scraped",
            "Nodes whose healthd Prometheus reaches, beside those that report to the centre.",
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
    "What is broken in the cluster, whether automation works, and which nodes are out.",
    (BLOCKED, BROKEN, COURSE),
    links=(("Status page", "${web}/"),),
)
