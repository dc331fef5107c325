"""The appearance of panels: a unit and a description each. A board defines the query, not how it is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from grafana_foundation_sdk.builders import common as look
from grafana_foundation_sdk.builders import prometheus, stat, table, text, timeseries
from grafana_foundation_sdk.builders.dashboard import DashboardLink, ThresholdsConfig
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import text as text_models
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
GREEN, ORANGE, RED, BLUE, GREY = "green", "orange", "red", "blue", "text"
HALF, THIRD, QUARTER, SIXTH, WHOLE = 12, 8, 6, 4, 24  # of the grid's 24 columns
ROW_HEIGHT, STAT_HEIGHT = 8, 4

Panel = timeseries.Panel | stat.Panel | table.Panel | text.Panel
_Drawn = TypeVar("_Drawn", timeseries.Panel, stat.Panel, table.Panel)


class Query(NamedTuple):
    """PromQL, and the series' names."""

    expr: str
    legend: str = ""


class Column(NamedTuple):
    """A column of a table: the label or `Value`, its heading, a unit, and a link (in Grafana's syntax)."""

    label: str
    heading: str
    unit: str = ""
    link: str = ""


def build_time_series(
    title: str, why: str, unit: str, *queries: Query, span: int = HALF, stacked: bool = False, bad: float | None = None
) -> timeseries.Panel:
    """Lines over time. Values above `bad` are red; None: no such threshold."""
    legend = (
        look.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.RIGHT if span > HALF else common.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )
    panel = (
        timeseries.Panel()
        .legend(legend)
        .tooltip(look.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING))
        .line_width(1)
        .fill_opacity(20 if stacked else 0)
        .show_points(common.VisibilityMode.NEVER)
        .axis_soft_min(0)
    )
    if stacked:
        panel.stacking(look.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if bad is not None:
        panel.thresholds(_build_thresholds((None, GREEN), (bad, RED)))
        panel.thresholds_style(look.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED))
    return _fill_panel(panel.span(span).height(ROW_HEIGHT), title, why, unit, queries)


def build_stat_panel(
    title: str,
    why: str,
    unit: str,
    query: Query,
    *steps: tuple[float | None, str],
    words: Mapping[float, tuple[str, str]] | None = None,
    span: int = SIXTH,
) -> stat.Panel:
    """One current number. `steps` colour it by value; `build_text_panel` shows words and colours instead.

    A query with a legend shows the series' name, not its number: for states.
    """
    panel = (
        stat.Panel()
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.BACKGROUND if steps or words else common.BigValueColorMode.NONE)
        .reduce_options(look.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_build_thresholds(*(steps or ((None, GREY),))))
        .no_value("no data")
    )
    if query.legend:
        panel.text_mode(common.BigValueTextMode.NAME)
    if words:
        said = {f"{value:g}": ValueMappingResult(text=word, color=color) for value, (word, color) in words.items()}
        panel.mappings([ValueMap(options=said)])
    return _fill_panel(panel.span(span).height(STAT_HEIGHT), title, why, unit, [query], instant=True)


def build_table_panel(
    title: str, why: str, query: str, *columns: Column, span: int = WHOLE, worst_first: bool = True
) -> table.Panel:
    """A table of current values: one row per series, only the named columns, in their order."""
    panel = table.Panel().no_value("none").filterable(True)
    order = {column.label: number for number, column in enumerate(columns)}
    rename = {column.label: column.heading for column in columns}
    panel.with_transformation(
        DataTransformerConfig(id_val="filterFieldsByName", options={"include": {"names": list(order)}})
    )
    panel.with_transformation(
        DataTransformerConfig(
            id_val="organize", options={"excludeByName": {}, "indexByName": order, "renameByName": rename}
        )
    )
    for column in columns:
        properties = []
        if column.unit:
            properties.append(DynamicConfigValue("unit", column.unit))
        if column.link:
            link = {"title": f"open {column.heading}", "url": column.link}
            properties.append(DynamicConfigValue("links", [link]))
        if properties:
            panel.override_by_name(column.heading, properties)
    if worst_first and "Value" in rename:
        panel.sort_by([look.TableSortByFieldState().display_name(rename["Value"]).desc(True)])
    return _fill_panel(panel.span(span).height(ROW_HEIGHT), title, why, "", [Query(query)], instant=True)


def build_text_panel(title: str, content: str, span: int = WHOLE, height: int = 3) -> text.Panel:
    """Text in Markdown."""
    return text.Panel().title(title).mode(text_models.TextMode.MARKDOWN).content(content).span(span).height(height)


def build_dashboard_link(title: str, url: str) -> DashboardLink:
    """A link at the top of a dashboard."""
    return DashboardLink(title).type(DashboardLinkType.LINK).url(url).keep_time(True).icon("external link")


def _fill_panel(
    panel: _Drawn,
    title: str,
    why: str,
    unit: str,
    queries: Sequence[Query],
    *,
    instant: bool = False,
) -> _Drawn:
    panel.title(title).description(why).datasource(SOURCE)
    if unit:
        panel.unit(unit)
    for letter, query in zip("ABCDEFGH", queries, strict=False):
        target = prometheus.Dataquery().expr(query.expr).ref_id(letter).datasource(SOURCE)
        if query.legend:
            target.legend_format(query.legend)
        if isinstance(panel, table.Panel):
            target.format(PromQueryFormat.TABLE)
        _ = target.instant() if instant else target.range()
        panel.with_target(target)
    return panel


def _build_thresholds(*steps: tuple[float | None, str]) -> ThresholdsConfig:
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps([Threshold(value, color) for value, color in steps])
