"""Reads the Xid catalogue from ``playbooks/catalogue/xid.yaml``, so that it has a version and can be replaced without code.

Loading costs milliseconds: callers load once and keep the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from vocabulary.catalogue import Catalogue
from vocabulary.catalogue_entry import Advice, Cause, Generation, RecoveryAction, XidEntry
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


class _XidRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One block of the file, as written."""

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


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: str
    sources: dict[str, str]
    parties: dict[str, str]
    recovery_actions: dict[int, Any]
    sxid: dict[Severity, tuple[int, ...]]
    xid: dict[int, Any]


_SURVIVES: dict[_Process, bool | None] = {"survives": True, "dies": False, "unknown": None}
T = TypeVar("T")

SHIPPED = Path(__file__).parents[1] / "playbooks" / "catalogue" / "xid.yaml"


def load_catalogue(path: Path | None = None) -> Catalogue:
    """Read the shipped catalogue, or the file at `path`.

    Raises:
        CatalogueError: the file is missing, no YAML, or a field is wrong; names the file, the code and the field.
    """
    source = path if path is not None else SHIPPED
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times faster
    try:
        data = yaml.load(source.read_bytes(), Loader=loader)  # noqa: S506 - both are safe loaders
    except OSError as error:
        raise CatalogueError(f"{source}: cannot be read: {error.strerror}; check the path") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{source}: not YAML: {' '.join(str(error).split())}") from error
    return _read(data, str(source))


def _read(data: object, where: str) -> Catalogue:
    file = _convert(data, _File, where)
    xids = {
        code: _entry(code, _convert(row, _XidRow, f"{where}: xid {code}"), file, where)
        for code, row in file.xid.items()
    }
    actions = {
        value: _convert(row, RecoveryAction, f"{where}: recovery action {value}")
        for value, row in file.recovery_actions.items()
    }
    sxids: dict[int, Severity] = {}
    for severity, codes in file.sxid.items():
        for code in codes:
            if sxids.setdefault(code, severity) is not severity:
                raise CatalogueError(f"{where}: sxid {code}: listed as {sxids[code].value} and as {severity.value}")
    return Catalogue(
        version=file.version,
        sources=file.sources,
        parties=file.parties,
        xids=xids,
        recovery_actions=actions,
        sxids=sxids,
    )


def _entry(code: int, row: _XidRow, file: _File, where: str) -> XidEntry:
    if strange := set(row.sources) - set(file.sources):
        raise CatalogueError(f"{where}: xid {code}: sources: {', '.join(sorted(strange))} not named at the top")
    if strange := set(row.others) - set(file.parties):
        raise CatalogueError(f"{where}: xid {code}: others: {', '.join(sorted(strange))} not named under parties")
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
        sources=row.sources,
    )


def _convert(data: object, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise CatalogueError(f"{where}: {error}") from error
