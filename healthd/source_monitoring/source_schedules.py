"""Applies the configuration to the list of sources: which are read, how often, with which options and checks."""

from __future__ import annotations

from collections.abc import Iterable

from healthd.config import Config, ConfigError, SourceConfig
from healthd.source_monitoring.source_prober import SourceSchedule
from healthd.source_monitoring.source_registry import SOURCES, Check, Source, map_sources_by_name
from healthd.thresholds import Thresholds


def make_source_schedules(config: Config) -> dict[str, SourceSchedule]:
    """Return how each enabled source is read.

    Raises:
        ConfigError: a source or option that does not exist.
    """
    known = map_sources_by_name()
    for name, section in config.sources.items():
        if name not in known:
            raise ConfigError(f"sources: no source {name!r}; {_suggest_name(name, known)}")
        for option in section.options:
            if option not in known[name].options:
                raise ConfigError(
                    f"sources.{name}.options: no option {option!r}; {_suggest_name(option, known[name].options)}"
                )
    return {
        source.name: SourceSchedule(section.every_s or source.every_s, source.sample, section.options)
        for source in SOURCES
        if (section := config.sources.get(source.name, SourceConfig())).enabled
    }


def make_source_checks(config: Config, thresholds: Thresholds) -> dict[str, tuple[Source, Check]]:
    """Return the enabled sources with their checks.

    Raises:
        ThresholdsError: the numbers of a section do not fit.
    """
    return {
        source.name: (source, source.make_check(thresholds))
        for source in SOURCES
        if config.sources.get(source.name, SourceConfig()).enabled
    }


def _suggest_name(word: str, valid: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415 - only for those who mistyped

    close = difflib.get_close_matches(word, list(valid), n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(sorted(valid)) or 'none'}"
