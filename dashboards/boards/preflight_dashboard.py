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
            "Nodes whose agent knows of a preflight; one that was started anew knows none.",
            "short",
            Query(f"count(healthd_preflight_timestamp_seconds{{{LEVEL}}})"),
        ),
        *(
            build_stat_panel(
                title,
                f"Nodes whose last preflight of the level said {verdict}.",
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
            "How long the slowest of the last preflights took.",
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
            "When each node was tested last, and what came of it.",
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
            "The worst device of each node. Compare within one unit and setting; a node far below the others is to be tested again.",
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
            "By verdict and by who asked: an order of the centre, or told by a prolog or a person.",
            "short",
            Query(f"sum by (verdict, by) (increase(healthd_preflights_total{{{LEVEL}}}[1d]))", "{{verdict}} ({{by}})"),
        ),
        build_time_series(
            "Figures beside the fleet",
            "Each node's worst device as a share of the median of all nodes shown, by figure; the ten furthest below.",
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
    "What the last preflights of nodes said and measured.",
    (NOW, RESULTS),
    levels=("node", "level"),
    since="now-7d",
)
