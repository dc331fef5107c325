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
            "Nodes that the controller holds out of service.",
            "short",
            Query(f"sum(remediator_isolated_nodes{{{CLUSTER}}})"),
        ),
        build_stat_panel(
            "Budget used",
            "Share of the nodes that may be isolated at once. When the budget is used up, no further node is isolated.",
            "percentunit",
            Query(f"max(remediator_isolated_nodes{{{CLUSTER}}} / remediator_isolated_nodes_limit{{{CLUSTER}}})"),
            (None, GREEN),
            (0.8, ORANGE),
            (1, RED),
        ),
        build_stat_panel(
            "Hourly budget used",
            "Share of the nodes that may be isolated within an hour.",
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
            "A drain may wait until a job ends. An order that waits for long has probably lost its node.",
            "s",
            Query(f"max(remediator_oldest_action_seconds{{{CLUSTER}}})"),
        ),
        build_stat_panel(
            "Open actions",
            "Actions planned but not finished.",
            "short",
            Query(f"sum(remediator_actions_open{{{CLUSTER}}})"),
        ),
        build_stat_panel(
            "Failed again within a day",
            "Nodes returned to service in the last eight weeks that failed within a day.",
            "short",
            Query(f'sum(remediator_returns_failed_again{{{CLUSTER},window="1d"}})'),
            (None, GREEN),
            (1, ORANGE),
        ),
    ),
)

ACTIONS = Section(
    "Decisions and actions",
    (
        build_time_series(
            "Decisions within an hour",
            "By answer: act, hold (a guard refused), approve, recommend, observe, watch.",
            "short",
            Query(f"sum by (answer) (increase(remediator_decisions_total{{{CLUSTER}}}[1h]))", "{{answer}}"),
            stacked=True,
        ),
        build_time_series(
            "Actions finished within an hour",
            "By verb and final state.",
            "short",
            Query(
                f"sum by (verb, state) (increase(remediator_actions_ended_total{{{CLUSTER}}}[1h]))",
                "{{verb}} {{state}}",
            ),
            stacked=True,
        ),
        build_time_series(
            "Time from plan to completion",
            "Median and 95th percentile of all actions of the last hour, by verb.",
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
            "Open incidents by state; `waiting` means waiting for a person.",
            "short",
            Query(f"sum by (state) (remediator_incidents{{{CLUSTER}}})", "{{state}}"),
            stacked=True,
        ),
        build_table_panel(
            "Decisions by rule",
            "Playbook rules that decided, and their answers, since this leader started.",
            f"sum by (rule, answer) (remediator_decisions_total{{{CLUSTER}}}) > 0",
            Column("Value", "Decisions", "short"),
            Column("rule", "Rule"),
            Column("answer", "Answer"),
            span=HALF,
        ),
        build_table_panel(
            "Audit log since this leader started",
            "Lines by kind. `healthctl events` shows the complete log.",
            f"sum by (kind, drill) (remediator_audit_events_total{{{CLUSTER}}}) > 0",
            Column("Value", "Lines", "short"),
            Column("kind", "Kind"),
            Column("drill", "Drill"),
            span=HALF,
        ),
    ),
)

CENTRE = Section(
    "Controller health",
    (
        build_time_series(
            "Leader",
            "1 for the leading replica. Exactly one line must be at 1.",
            "short",
            Query(f"remediator_leading{{{CLUSTER}}}", "{{instance}}"),
            span=THIRD,
        ),
        build_time_series(
            "Leader changes",
            "Leader epoch. Each step is a failover or a restart.",
            "short",
            Query(f"max by (cluster) (remediator_epoch{{{CLUSTER}}})", "epoch"),
            span=THIRD,
        ),
        build_time_series(
            "Inputs not yet written",
            "Findings and answers in the queue. From 50 000 the controller makes nodes wait.",
            "short",
            Query(f"sum by (cluster) (remediator_inputs_waiting{{{CLUSTER}}})", "waiting"),
            span=THIRD,
            bad=50_000,
        ),
        build_time_series(
            "Age of the current batch, lag of the event loop",
            "Time since the current batch was started: a hanging database shows here first. And how late the event loop reads requests.",
            "s",
            Query(f"max by (cluster) (remediator_batch_age_seconds{{{CLUSTER}}})", "batch"),
            Query(
                f"histogram_quantile(0.99, sum by (cluster, le) (rate(remediator_event_loop_lag_seconds_bucket{{{CLUSTER}}}[5m])))",
                "event loop lag, 99 %",
            ),
            span=THIRD,
            bad=10,
        ),
        build_time_series(
            "Failed analyses",
            "Internal errors by part: passes over all nodes, and the watcher.",
            "short",
            Query(f"sum by (part) (increase(remediator_watch_faults_total{{{CLUSTER}}}[1h]))", "{{part}}"),
            Query(f"sum by (part) (remediator_lookout_failing{{{CLUSTER}}})", "watcher: {{part}}"),
            span=THIRD,
        ),
        build_time_series(
            "Reports waiting on nodes",
            "Changes that the controller has not acknowledged, over all nodes; and inputs that were set aside.",
            "short",
            Query(f"sum by (cluster) (healthd_outbox_waiting_changes{{{CLUSTER}}})", "waiting on nodes"),
            Query(f"sum by (cluster) (remediator_inputs_set_aside{{{CLUSTER}}})", "set aside"),
            span=THIRD,
        ),
        build_time_series(
            "Notifications",
            "Delivery attempts within an hour by receiver and result. Messages given up are not delivered.",
            "short",
            Query(
                f"sum by (receiver, result) (increase(remediator_messages_total{{{CLUSTER}}}[1h]))",
                "{{receiver}} {{result}}",
            ),
            span=HALF,
        ),
        build_time_series(
            "Scheduler unavailable",
            "1 while the controller cannot reach the scheduler. Until then no node is isolated or returned.",
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
    "Decisions, actions and their durations, budget use, and controller health.",
    (BUDGET, ACTIONS, CENTRE),
    since="now-24h",
    links=(("Incidents", "${web}/incidents"),),
)
