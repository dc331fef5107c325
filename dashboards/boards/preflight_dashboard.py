"""Burn-in: verdicts and measurements of the last preflights."""

from __future__ import annotations

from dashboards.board_layout import NODE, NODE_BOARD, Board, Section
from dashboards.panels import (
    GREEN,
    HALF,
    ORANGE,
    RED,
    Column,
    Query,
    build_stat_panel,
    build_table_panel,
    build_time_series,
)

LEVEL = f'{NODE},level=~"$level"'

NOW = Section(
    "Now",
    (
        build_stat_panel(
            "Nodes with a result",
            "Nodes whose agent knows a preflight result. An agent forgets it at a restart.",
            "short",
            Query(f"count(healthd_preflight_timestamp_seconds{{{LEVEL}}})"),
        ),
        *(
            build_stat_panel(
                title,
                f"Nodes whose last preflight of the level had the verdict {verdict}.",
                "short",
                Query(f'sum(healthd_preflight_verdict{{{LEVEL},verdict="{verdict}"}})'),
                *steps,
            )
            for title, verdict, steps in (
                ("Passed", "pass", ()),
                ("Failed", "fail", ((None, GREEN), (1, RED))),
                ("Inconclusive", "inconclusive", ((None, GREEN), (1, ORANGE))),
                ("Misconfigured", "misconfigured", ((None, GREEN), (1, ORANGE))),
            )
        ),
        build_stat_panel(
            "Longest",
            "Duration of the slowest of the last preflights.",
            "s",
            Query(f"max(healthd_preflight_seconds{{{LEVEL}}})"),
        ),
    ),
)

RESULTS = Section(
    "Results",
    (
        build_table_panel(
            "Last verdicts",
            "Last test of each node, and its verdict.",
            f"(healthd_preflight_timestamp_seconds{{{LEVEL}}} * 1000) "
            f"* on (cluster, node, level) group_right healthd_preflight_verdict{{{LEVEL}}} > 0",
            Column("Value", "Ended", "dateTimeFromNow"),
            Column("node", "Node", link=NODE_BOARD),
            Column("level", "Level"),
            Column("verdict", "Verdict"),
            span=HALF,
        ),
        build_table_panel(
            "Figures",
            "The worst device of each node. Compare within one unit and setting. Test a node again if it is far below the others.",
            f"healthd_preflight_figure{{{LEVEL}}}",
            Column("node", "Node", link=NODE_BOARD),
            Column("figure", "Figure"),
            Column("Value", "Worst device"),
            Column("unit", "Unit"),
            Column("setting", "Setting"),
            Column("level", "Level"),
            span=HALF,
        ),
        build_time_series(
            "Ended within a day",
            "By verdict and by origin: ordered by the controller, or reported by a prolog or a person.",
            "short",
            Query(f"sum by (verdict, by) (increase(healthd_preflights_total{{{LEVEL}}}[1d]))", "{{verdict}} ({{by}})"),
        ),
        build_time_series(
            "Figures compared with the fleet",
            "Worst device of each node relative to the median of all shown nodes, by figure; the ten lowest.",
            "percentunit",
            Query(
                f"bottomk(10, healthd_preflight_figure{{{LEVEL}}} / on (figure, unit, setting, level) group_left "
                f"quantile by (figure, unit, setting, level) (0.5, healthd_preflight_figure{{{LEVEL}}}))",
                "{{node}} {{figure}} {{setting}}",
            ),
        ),
    ),
)

BOARD = Board(
    "preflight",
    "Preflight",
    "Verdicts and measurements of the last preflights.",
    (NOW, RESULTS),
    levels=("node", "level"),
    since="now-7d",
)
