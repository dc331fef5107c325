"""Common parts of all dashboards: variables, links between them and to the web pages, incident annotations, JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from grafana_foundation_sdk.builders.dashboard import (
    AnnotationQuery,
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    QueryVariable,
    Row,
    TextBoxVariable,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from dashboards.panels import SOURCE, Panel, build_dashboard_link

TAG = "gpu-healthd"
ALL = VariableOption(text="All", value="$__all", selected=True)

# Label matchers of each level. A scrape configuration gives every target `cluster` and every node's `node` (deploy/prometheus).
CLUSTER = 'cluster=~"$cluster"'
NODE = f'{CLUSTER},node=~"$node"'
GPU = f'{NODE},gpu=~"$gpu"'
# Prometheus reserves the label `job`: an exporter's own `job` arrives as `exported_job`.
JOB = f'{CLUSTER},exported_job=~"$job"'

NODE_PAGE = "${web}/nodes/${__value.text:percentencode}"
INCIDENT_PAGE = "${web}/incidents/${__value.text:percentencode}"
JOB_PAGE = "${web}/jobs/${__value.text:percentencode}"
NODE_BOARD = (
    "/d/gpu-healthd-node?var-datasource=${datasource}&${cluster:queryparam}&var-node=${__value.text:percentencode}"
)


class Section(NamedTuple):
    """Panels under a heading."""

    heading: str
    panels: Sequence[Panel]


class Board(NamedTuple):
    """One dashboard. `levels` are the variables besides the data source, the cluster and the web pages' address."""

    name: str
    title: str
    why: str
    sections: Sequence[Section]
    levels: Sequence[str] = ()
    since: str = "now-6h"
    links: Sequence[tuple[str, str]] = ()


_LEVELS = {
    "node": f"label_values(healthd_build_info{{{CLUSTER}}}, node)",
    "gpu": f"label_values(healthd_gpu_info{{{NODE}}}, gpu)",
    "job": f"label_values(healthd_job_info{{{CLUSTER}}}, exported_job)",
    "level": f"label_values(healthd_preflight_timestamp_seconds{{{CLUSTER}}}, level)",
}


def build_dashboard(board: Board) -> dict[str, Any]:
    """The dashboard in Grafana's format."""
    dashboard = (
        Dashboard(f"GPU health / {board.title}")
        .uid(f"gpu-healthd-{board.name}")
        .description(board.why)
        .tags([TAG])
        .readonly()
        .refresh("1m")
        .time(board.since, "now")
        .timezone("utc")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .variables(
            [
                _build_datasource_variable(),
                _build_query_variable("cluster", "label_values(healthd_build_info, cluster)"),
            ]
        )
        .annotation(_build_incident_annotations())
        .link(
            DashboardLink("GPU health")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
    )
    for level in board.levels:
        dashboard.with_variable(_build_query_variable(level, _LEVELS[level]))
    dashboard.with_variable(
        _build_text_variable(
            "web", "Base URL of the controller's web pages, without a trailing slash", "https://gpu-health.example"
        )
    )
    if board.name == "capacity":
        dashboard.with_variable(_build_text_variable("price", "Price of one GPU-hour, in your currency", "2"))
    for title, url in board.links:
        dashboard.link(build_dashboard_link(title, url))
    for section in board.sections:
        dashboard.with_row(Row(section.heading))
        for panel in section.panels:
            dashboard.with_panel(panel)
    document: dict[str, Any] = json.loads(json.dumps(dashboard.build(), cls=JSONEncoder))
    return _complete_dashboard_json(document)


def _complete_dashboard_json(document: dict[str, Any]) -> dict[str, Any]:
    """Add what the library's types lack: panel numbers, and annotation times from the metric's value."""
    for number, panel in enumerate(document["panels"], 1):
        panel["id"] = number
    for annotation in document["annotations"]["list"]:
        annotation |= {
            "useValueForTime": True,
            "titleFormat": "{{node}}",
            "textFormat": "{{incident}}",
            "tagKeys": "incident",
        }
        annotation["step"] = "60s"
    return document


def _build_datasource_variable() -> DatasourceVariable:
    return DatasourceVariable("datasource").label("Data source").type("prometheus")


def _build_query_variable(name: str, query: str) -> QueryVariable:
    return (
        QueryVariable(name)
        .label(name.capitalize() if name != "gpu" else "GPU")
        .datasource(SOURCE)
        .query({"qryType": 1, "query": query, "refId": name})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.NATURAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(ALL)
    )


def _build_text_variable(name: str, label: str, value: str) -> TextBoxVariable:
    shown = VariableOption(text=value, value=value, selected=True)
    return TextBoxVariable(name).label(label).default_value(value).current(shown).options([shown])


def _build_incident_annotations() -> AnnotationQuery:
    return (
        AnnotationQuery()
        .name("Incidents")
        .datasource(SOURCE)
        .enable(True)
        .icon_color("orange")
        .expr(f'remediator_incident_opened_timestamp_seconds{{{CLUSTER},drill="false"}} * 1000')
    )


def query_new_xids(by: str, matchers: str) -> str:
    """The query for new Xids by the labels `by`, over the series that `matchers` selects.

    The series of a code that is not critical starts with its first Xid, at 1, which `increase` does not count. So a series that
    did not exist an hour ago counts in full.
    """
    counter = f"healthd_xids_total{{{matchers}}}"
    return f"sum by ({by}) (increase({counter}[1h])) > 0 or sum by ({by}) ({counter} unless {counter} offset 1h) > 0"
