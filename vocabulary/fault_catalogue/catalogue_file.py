"""Reads the catalogue from ``playbooks/catalogue``, so that it has a version and can change without code.

Loading costs some 30 ms: callers load once and keep the result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from vocabulary.fault_catalogue.catalogue import Catalogue
from vocabulary.fault_catalogue.catalogue_entry import (
    Advice,
    Cause,
    ErrorReach,
    Generation,
    ReadingRule,
    RecoveryAction,
    SxidEffect,
    SxidEntry,
    XidEntry,
)
from vocabulary.fault_catalogue.nvlink_tables import Bucket, NvlinkTables, OtherBits, RegisterBits, Unit
from vocabulary.fault_catalogue.reading_rules import list_rule_parts
from vocabulary.finding import Severity


class CatalogueError(ValueError):
    """The catalogue cannot be used. The text names the file, the code and the field."""


_Process = Literal["survives", "dies", "unknown"]


class _Buckets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    immediate: str
    investigatory: str


class _Reading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    blame: Cause
    process: _Process
    severity: Severity
    action: Advice


class _SwitchReading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    blame: Cause
    severity: Severity
    action: Advice
    effect: ErrorReach


class _XidRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One block of ``xid:``, as written."""

    name: str
    meaning: str
    causes: tuple[Cause, ...]
    ours: _Reading
    nvidia: _Buckets
    sources: tuple[str, ...]
    alias: str = ""
    gpus: str = ""
    recovery_since: str = ""
    look_at: tuple[str, ...] = ()
    differs: dict[Generation, str] = {}
    others: dict[str, str] = {}
    why: str = ""
    note: str = ""
    reads: tuple[ReadingRule, ...] = ()


class _SxidRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One block of ``sxid:``, as written."""

    name: str
    meaning: str
    ours: _SwitchReading
    sources: tuple[str, ...]
    others: dict[str, str] = {}
    why: str = ""
    note: str = ""


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All files together; the rows are parsed one by one, so that an error can name its number."""

    version: str
    sources: dict[str, str]
    parties: dict[str, str]
    recovery_actions: dict[int, Any]
    xid: dict[int, Any]
    sxid: dict[int, Any]
    sxid_effects: dict[ErrorReach, SxidEffect]
    nvlink5: dict[int, tuple[Unit, ...]]
    nvlink5_buckets: dict[str, Bucket]
    nvlink5_printed: dict[str, Bucket]
    xid_74_bits: tuple[RegisterBits, ...]
    xid_74_other: OtherBits


_SURVIVES: dict[_Process, bool | None] = {"survives": True, "dies": False, "unknown": None}
T = TypeVar("T")
K = TypeVar("K", bound=str)
V = TypeVar("V")

FOLDER = Path(__file__).parents[2] / "playbooks" / "catalogue"
SHIPPED = ("xid.yaml", "sxid.yaml", "nvlink.yaml")


def load_catalogue(path: Path | None = None) -> Catalogue:
    """Return the shipped catalogue, overridden by the file at `path` if given.

    That file holds only the differences; it must have a `version`, which is appended to the shipped one.

    Raises:
        CatalogueError: a file is missing, not YAML, or a field is invalid; names the file, the code and the field.
    """
    data: dict[str, Any] = {}
    for name in SHIPPED:
        data = _merge_sections(data, _load_sections(FOLDER / name))
    if path is None:
        return _build_catalogue(data, str(FOLDER))
    mine = _load_sections(path)
    if not isinstance(mine.get("version"), str):
        raise CatalogueError(f"{path}: version: missing, or not text; name your changes, for instance site-1")
    mine["version"] = f"{data['version']}, {mine['version']}"
    return _build_catalogue(_merge_sections(data, mine), str(path))


def _load_sections(path: Path) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is ten times faster
    try:
        data = yaml.load(path.read_bytes(), Loader=loader)  # noqa: S506 - both are safe loaders
    except OSError as error:
        raise CatalogueError(f"{path}: cannot be read: {error.strerror}; check the path") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise CatalogueError(f"{path}: holds no sections such as 'xid:'")
    return data


def _merge_sections(under: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return `under` overridden by `over`: mappings are merged, everything else is replaced."""
    joined = dict(under)
    for key, value in over.items():
        old = joined.get(key)
        joined[key] = _merge_sections(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return joined


def _build_catalogue(data: dict[str, Any], where: str) -> Catalogue:
    file = _convert_section(data, _File, where)
    return Catalogue(
        version=file.version,
        sources=file.sources,
        parties=file.parties,
        xids={code: _build_xid_entry(code, row, file, f"{where}: xid {code}") for code, row in file.xid.items()},
        recovery_actions={
            value: _convert_section(row, RecoveryAction, f"{where}: recovery action {value}")
            for value, row in file.recovery_actions.items()
        },
        sxids={code: _build_sxid_entry(code, row, file, f"{where}: sxid {code}") for code, row in file.sxid.items()},
        sxid_effects=_require_keys(file.sxid_effects, tuple(ErrorReach), f"{where}: sxid_effects"),
        nvlink=_build_nvlink_tables(file, where),
    )


def _build_nvlink_tables(file: _File, where: str) -> NvlinkTables:
    for code, units in file.nvlink5.items():
        buckets = {bucket for unit in units for row in unit.rows for bucket in (row.immediate, row.later)}
        _require_described(buckets, file.nvlink5_buckets, f"{where}: nvlink5 {code}: nvlink5_buckets")
    return NvlinkTables(
        units=file.nvlink5,
        buckets=file.nvlink5_buckets,
        printed=_require_keys(file.nvlink5_printed, ("fatal", "nonfatal"), f"{where}: nvlink5_printed"),
        bits=file.xid_74_bits,
        other_bits=file.xid_74_other,
    )


def _build_xid_entry(code: int, data: object, file: _File, where: str) -> XidEntry:
    row = _convert_section(data, _XidRow, where)
    _require_described(row.sources, file.sources, f"{where}: sources")
    _require_described(row.others, file.parties, f"{where}: others")
    return XidEntry(
        code=code,
        mnemonic=row.name,
        meaning=row.meaning,
        causes=row.causes,
        blame=row.ours.blame,
        process_survives=_SURVIVES[row.ours.process],
        severity=row.ours.severity,
        action=row.ours.action,
        nvidia_immediate=row.nvidia.immediate,
        nvidia_investigatory=row.nvidia.investigatory,
        alias=row.alias,
        gpus=row.gpus,
        recovery_since=row.recovery_since,
        look_at=row.look_at,
        differs=row.differs,
        others=row.others,
        why=row.why,
        note=row.note,
        reads=tuple(_check_rule(rule, f"{where}: reads: {rule.says!r}") for rule in row.reads),
        sources=row.sources,
    )


def _check_rule(rule: ReadingRule, where: str) -> ReadingRule:
    if (rule.severity is None) is not (rule.action is None):
        raise CatalogueError(f"{where}: severity and action come together")
    try:
        unsure = list_rule_parts(rule) - {name for name, wanted in rule.when.items() if wanted != "none"}
    except ValueError as error:
        raise CatalogueError(f"{where}: {error}") from None
    if unsure:
        raise CatalogueError(f"{where}: {', '.join(sorted(unsure))} in braces, but not under when")
    return rule


def _build_sxid_entry(code: int, data: object, file: _File, where: str) -> SxidEntry:
    row = _convert_section(data, _SxidRow, where)
    _require_described(row.sources, file.sources, f"{where}: sources")
    _require_described(row.others, file.parties, f"{where}: others")
    return SxidEntry(
        code=code,
        mnemonic=row.name,
        meaning=row.meaning,
        blame=row.ours.blame,
        severity=row.ours.severity,
        action=row.ours.action,
        effect=row.ours.effect,
        others=row.others,
        why=row.why,
        note=row.note,
        sources=row.sources,
    )


def _require_described(names: Collection[str], described: Collection[str], where: str) -> None:
    if strange := set(names) - set(described):
        raise CatalogueError(f"{where}: {', '.join(sorted(strange))} not described under that heading at the top")


def _require_keys(found: dict[K, V], keys: Collection[K], where: str) -> dict[K, V]:
    if missing := [str(key) for key in keys if key not in found]:
        raise CatalogueError(f"{where}: {', '.join(missing)} missing")
    return found


def _convert_section(data: object, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise CatalogueError(f"{where}: {error}") from error
