"""Truncates a message to its bounds (`vocabulary.messages.message_bounds`), so that no report is rejected for its size.

A truncated text ends with `CUT`. Loaded only when something does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from vocabulary.finding import Finding
from vocabulary.messages.message_bounds import ACTIVE_MAX, RANKS_MAX, FindingBounds, OrderUpdateBounds
from vocabulary.messages.wire import REPORT_BYTES_MAX, Report, encode_message
from vocabulary.order import OrderUpdate

CUT = "… (cut)"
NUL_SHOWN = "\N{SYMBOL FOR NULL}"
SHORT_CHARS = 200  # per text, in a report that is too long as a whole

_KINDS: dict[type, tuple[type, ...]] = {
    str: (inspect.StrType,),
    bool: (inspect.BoolType,),
    int: (inspect.IntType, inspect.FloatType),
    float: (inspect.FloatType,),
    type(None): (inspect.NoneType,),
}
_S = TypeVar("_S", bound=msgspec.Struct)


def fit_report(report: Report) -> Report:
    """Return the report, with everything in it truncated to its bounds and the whole to `REPORT_BYTES_MAX`."""
    changes = tuple(replace(each, finding=fit_finding(each.finding)) for each in report.changes)
    active = tuple(fit_finding(finding) for finding in report.active[:ACTIVE_MAX])
    report = replace(report, changes=changes, active=active, ranks=report.ranks[:RANKS_MAX])
    kept = ("changes", "active", "health", "telemetry")
    report = _fit_struct(report, _struct_fields(Report), leave=kept)
    for shorten in _SHORTENINGS:
        if len(encode_message(report)) <= REPORT_BYTES_MAX:
            break
        report = shorten(report)
    return report


def fit_finding(finding: Finding) -> Finding:
    """Return the finding, truncated to its bounds. Its id stays: it was made from the full text."""
    return _fit_struct(finding, _struct_fields(FindingBounds), leave=("id", "severity"))


def fit_order_update(update: OrderUpdate) -> OrderUpdate:
    """Return the answer to an order, truncated to its bounds."""
    return _fit_struct(update, _struct_fields(OrderUpdateBounds), leave=("id", "state"))


def _struct_fields(kind: type) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)  # noqa: S101 - the callers name structs
    return info.fields


def _fit_struct(value: _S, fields: Iterable[inspect.Field], leave: tuple[str, ...] = ()) -> _S:
    changes = {f.name: _fit_value(getattr(value, f.name), f.type) for f in fields if f.name not in leave}
    return replace(value, **changes)


def _fit_value(value: Any, info: inspect.Type) -> Any:
    """Return `value` within the bounds of `info`. Enums, booleans and None stay."""
    if isinstance(info, inspect.UnionType):
        info = _member_for(value, info.types)
    if isinstance(info, inspect.StrType) and type(value) is str:
        return _fit_text(value, info.max_length)
    if isinstance(info, inspect.IntType | inspect.FloatType) and not isinstance(value, bool):
        return _fit_number(value, info)
    if isinstance(info, inspect.VarTupleType):
        return tuple(_fit_value(item, info.item_type) for item in value[: info.max_length])
    if isinstance(info, inspect.DictType):
        entries = list(value.items())[: info.max_length]
        return {_fit_value(key, info.key_type): _fit_value(item, info.value_type) for key, item in entries}
    if isinstance(info, inspect.StructType):
        return _fit_struct(value, info.fields)
    return value


def _member_for(value: Any, types: Iterable[inspect.Type]) -> inspect.Type:
    """Return the union member for values like this one; an integer may stand where only a float is allowed."""
    wanted: tuple[type, ...] = _KINDS.get(type(value), (inspect.StructType,))
    by_kind = {type(each): each for each in types}
    return next((by_kind[kind] for kind in wanted if kind in by_kind), inspect.AnyType())


def _fit_text(text: str, most: int | None) -> str:
    text = text.replace("\0", NUL_SHOWN).encode(errors="replace").decode()  # a lone surrogate cannot be encoded
    return text if most is None or len(text) <= most else text[: most - len(CUT)] + CUT


def _fit_number(value: Any, info: inspect.IntType | inspect.FloatType) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        value = 0.0
    least, most = info.ge, info.le
    if least is not None and value < least:
        value = type(value)(least)
    return type(value)(most) if most is not None and value > most else value


def _shorten_finding(finding: Finding) -> Finding:
    if len(finding.summary) > SHORT_CHARS:
        finding = replace(finding, summary=finding.summary[:SHORT_CHARS] + CUT)
    return replace(finding, evidence={})


_SHORTENINGS: tuple[Callable[[Report], Report], ...] = (
    lambda r: replace(r, telemetry=msgspec.UNSET),
    lambda r: replace(r, swaps=()),
    lambda r: replace(r, ranks=tuple(replace(rank, windows=()) for rank in r.ranks)),
    lambda r: replace(r, changes=r.changes[:1]),
    lambda r: replace(r, active=tuple(_shorten_finding(finding) for finding in r.active)),
    lambda r: replace(r, ranks=r.ranks[: RANKS_MAX // 8]),
)
