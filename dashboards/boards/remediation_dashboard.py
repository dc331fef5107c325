"""The controller: decisions, actions and their durations, budgets, and its own health."""

from __future__ import annotations

from dashboards.board_layout import CLUSTER, Board, Section
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

BUDGET = Section(
    "Budget",
    (
        build_stat_panel(
            "Isolated",
            "Nodes that we hold out of service.",
            "short",
            Query(f"sum(remediator_isolated_nodes{{{CLUSTER}}})"),
        ),
        build_stat_panel(
            "Budget used",
            "Of the nodes that may be out at once. When it is used up, nothing more is isolated.",
            "percentunit",
            Query(f"max(remediator_isolated_nodes{{{CLUSTER}}} / remediator_isolated_nodes_limit{{{CLUSTER}}})"),
            (None, GREEN),
            (0.8, ORANGE),
            (1, RED),
        ),
        build_stat_panel(
            "Isolated within an hour",
            "Of the nodes that may be isolated within an hour.",
            "percentunit",
            Query(
                f"max(remediator_isolations_last_hour{{{CLUSTER}}} / remediator_isolations_last_hour_limit{{{CLUSTER}}})"
            ),
            (None, GREEN),
            (0.8, ORANGE),
            (1, RED),
        ),
        build_stat_panel(
            "Oldest open action",
            "A drain may wait for a job's end; an order that waits for long has lost its node.",
            "s",
            Query(f"max(remediator_oldest_action_seconds{{{CLUSTER}}})"),
        ),
        build_stat_panel(
            "Open actions", "Planned and not ended.", "short", Query(f"sum(remediator_actions_open{{{CLUSTER}}})")
        ),
        build_stat_panel(
            "Failed again within a day",
            "Of the nodes that were brought back in the last eight weeks: how many failed within a day.",
            "short",
            Query(f'sum(remediator_returns_failed_again{{{CLUSTER},window="1d"}})'),
            (None, GREEN),
            (1, ORANGE),
        ),
    ),
)

DEEDS = Section(
    "Decisions and actions",
    (
        build_time_series(
            "Decisions within an hour",
            "By answer: act, hold (a guard said no), approve, recommend, observe, watch.",
            "short",
            Query(f"sum by (answer) (increase(remediator_decisions_total{{{CLUSTER}}}[1h]))", "{{answer}}"),
            stacked=True,
        ),
        build_time_series(
            "Actions that ended within an hour",
            "By verb and end.",
            "short",
            Query(
                f"sum by (verb, state) (increase(remediator_actions_ended_total{{{CLUSTER}}}[1h]))",
                "{{verb}} {{state}}",
            ),
            stacked=True,
        ),
        build_time_series(
            "From plan to done",
            "Median and slowest twentieth of all actions of the last hour, by verb.",
            "s",
            Query(
                f"histogram_quantile(0.5, sum by (verb, le) (rate(remediator_action_seconds_bucket{{{CLUSTER}}}[1h])))",
                "{{verb}} median",
            ),
            Query(
                "histogram_quantile(0.95, sum by (verb, le) "
                f"(rate(remediator_action_seconds_bucket{{{CLUSTER}}}[1h])))",
                "{{verb}} 95 %",
            ),
        ),
        build_time_series(
            "Incidents",
            "Not closed, by state; waiting are those that wait for a person.",
            "short",
            Query(f"sum by (state) (remediator_incidents{{{CLUSTER}}})", "{{state}}"),
            stacked=True,
        ),
        build_table_panel(
            "Rules of this term",
            "Which rules of the playbooks decided, and what, since this leader began.",
            f"sum by (rule, answer) (remediator_decisions_total{{{CLUSTER}}}) > 0",
            Column("Value", "Decisions", "short"),
            Column("rule", "Rule"),
            Column("answer", "Answer"),
            span=HALF,
        ),
        build_table_panel(
            "Audit log of this term",
            "Lines by kind; the whole log is at the centre (healthctl events).",
            f"sum by (kind, drill) (remediator_audit_events_total{{{CLUSTER}}}) > 0",
            Column("Value", "Lines", "short"),
            Column("kind", "Kind"),
            Column("drill", "Drill"),
            span=HALF,
        ),
    ),
)

CENTRE = Section(
    "The centre itself",
    (
        build_time_series(
            "Who leads",
            "1 for the replica that leads. Exactly one line stands at 1.",
            "short",
            Query(f"remediator_leading{{{CLUSTER}}}", "{{instance}}"),
            span=THIRD,
        ),
        build_time_series(
            "Changes of the lead",
            "The number of the term. Each step is a failover or a restart.",
            "short",
            Query(f"max by (cluster) (remediator_epoch{{{CLUSTER}}})", "term"),
            span=THIRD,
        ),
        build_time_series(
            "News not written yet",
            "Findings and answers in the queue; nodes are asked to wait at 50 000.",
            "short",
            Query(f"sum by (cluster) (remediator_inputs_waiting{{{CLUSTER}}})", "waiting"),
            span=THIRD,
            bad=50_000,
        ),
        build_time_series(
            "Age of the batch in hand",
            "How long the present batch has been decided upon and written. A database that hangs shows here first.",
            "s",
            Query(f"max by (cluster) (remediator_batch_age_seconds{{{CLUSTER}}})", "batch"),
            span=THIRD,
            bad=10,
        ),
        build_time_series(
            "Judgements that failed",
            "Errors of ours, by part: passes over all nodes, and the lookout.",
            "short",
            Query(f"sum by (part) (increase(remediator_watch_faults_total{{{CLUSTER}}}[1h]))", "{{part}}"),
            Query(f"sum by (part) (remediator_lookout_failing{{{CLUSTER}}})", "lookout: {{part}}"),
            span=THIRD,
        ),
        build_time_series(
            "Reports that wait on nodes",
            "Changes that the centre has not acknowledged, of all nodes; and inputs that were set aside.",
            "short",
            Query(f"sum by (cluster) (healthd_outbox_waiting_changes{{{CLUSTER}}})", "waiting on nodes"),
            Query(f"sum by (cluster) (remediator_inputs_set_aside{{{CLUSTER}}})", "set aside"),
            span=THIRD,
        ),
        build_time_series(
            "Messages to people",
            "Attempts within an hour to tell each receiver, by how they ended; what is given up nobody hears of.",
            "short",
            Query(
                f"sum by (receiver, result) (increase(remediator_messages_total{{{CLUSTER}}}[1h]))",
                "{{receiver}} {{result}}",
            ),
            span=HALF,
        ),
        build_time_series(
            "Scheduler does not answer",
            "1 while the centre cannot ask the scheduler: then no node is taken out or brought back.",
            "short",
            Query(f"max by (cluster) (remediator_scheduler_failing{{{CLUSTER}}})", "{{cluster}}"),
            span=HALF,
            bad=1,
        ),
    ),
)

BOARD = Board(
    "remediation",
    "Remediation and audit",
    "What was decided and done, how long it took, how much of the budget is used, and how the centre fares itself.",
    (BUDGET, DEEDS, CENTRE),
    since="now-24h",
    links=(("Incidents", "${web}/incidents"),),
)
