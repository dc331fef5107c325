"""Reads the Xid catalogue: what each number means, whom it blames, how bad it is, and what we do about it.

The knowledge is data (``playbooks/catalogue/xid.yaml``), so that it has a version and can be replaced without code.
Loading costs milliseconds: callers load once and keep the result.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from vocabulary.finding import Severity
from vocabulary.xid import KernelEvent, KernelEventKind


class CatalogueError(ValueError):
    """The catalogue cannot be used. The text names the file, the code and the field."""


class Blame(str, enum.Enum):
    """Where the cause most likely lies."""

    APPLICATION = "application"
    DRIVER = "driver"
    GPU_MEMORY = "gpu_memory"
    GPU = "gpu"
    NVLINK = "nvlink"
    NVSWITCH = "nvswitch"
    PCIE = "pcie"
    HOST = "host"
    THERMAL = "thermal"
    POWER = "power"
    UNKNOWN = "unknown"


class Advice(str, enum.Enum):
    """What should be done, in one word. The playbook decides; this is the catalogue's opinion."""

    NONE = "none"
    WATCH = "watch"
    RESTART_JOB = "restart_job"
    DRAIN_RESET = "drain_reset"  # let work finish, then reset the GPU
    RESET_GPU = "reset_gpu"
    REBOOT_NODE = "reboot_node"
    RESTART_VM = "restart_vm"
    ISOLATE_REPLACE = "isolate_replace"
    HANDS_ON = "hands_on"  # seating, cables
    UPDATE_SOFTWARE = "update_software"
    DECODE = "decode"  # the registers in the line decide
    BY_VALUE = "by_value"  # the number in the line decides
    TRIAGE = "triage"  # a person must look


class XidEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One Xid number. `process_survives` is None where nobody knows; `gpus` and `recovery_since` as in the file."""

    code: int
    mnemonic: str
    meaning: str
    causes: tuple[str, ...]
    blame: Blame
    process_survives: bool | None
    severity: Severity
    action: Advice
    nvidia_immediate: str
    nvidia_investigatory: str
    alias: str = ""
    gpus: str = ""
    recovery_since: str = ""
    note: str = ""
    sources: tuple[str, ...] = ()


class RecoveryAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One value of Xid 154, or of NVML's recovery-action field."""

    meaning: str
    severity: Severity
    action: Advice


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The whole catalogue, read and checked."""

    version: str
    sources: Mapping[str, str]
    xids: Mapping[int, XidEntry]
    recovery_actions: Mapping[int, RecoveryAction]
    sxids: Mapping[int, Severity]

    def entry(self, code: int) -> XidEntry:
        """What is known about `code`; for a number nobody has described, an entry that says exactly that."""
        return self.xids.get(code) or _undescribed(code)

    def recovery(self, value: int) -> RecoveryAction:
        """What a recovery-action number asks for; an unknown one asks for a person."""
        return self.recovery_actions.get(value) or RecoveryAction(
            f"recovery action {value}, which is not described here", Severity.UNCLASSIFIED, Advice.TRIAGE
        )

    def severity_of(self, event: KernelEvent) -> Severity:
        """How bad one kernel event is: by the number it carries, the word in its line, then the table."""
        if event.kind is KernelEventKind.FALLEN_OFF_BUS:
            return self.entry(79).severity
        if event.kind is KernelEventKind.SXID:
            return _SXID_WORDS.get(event.word) or self.sxids.get(event.code or 0, Severity.UNCLASSIFIED)
        if event.recovery_action is not None:
            return self.recovery(event.recovery_action).severity
        return self.entry(event.code or 0).severity


_Process = Literal["survives", "dies", "unknown"]
_SXID_WORDS = {"Fatal": Severity.FATAL, "Non-fatal": Severity.WARNING}


class _Buckets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    immediate: str
    investigatory: str


class _Reading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    blame: Blame
    process: _Process
    severity: Severity
    action: Advice


class _XidRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One block of the file, as written."""

    name: str
    meaning: str
    causes: tuple[str, ...]
    ours: _Reading
    nvidia: _Buckets
    sources: tuple[str, ...]
    alias: str = ""
    gpus: str = ""
    recovery_since: str = ""
    note: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: str
    sources: dict[str, str]
    recovery_actions: dict[int, Any]
    sxid: dict[Severity, tuple[int, ...]]
    xid: dict[int, Any]


_SURVIVES: dict[_Process, bool | None] = {"survives": True, "dies": False, "unknown": None}
T = TypeVar("T")


def load_catalogue(path: Path | None = None) -> Catalogue:
    """Read the shipped catalogue, or the file at `path`.

    Raises:
        CatalogueError: the file is missing, no YAML, or a field is wrong; names the file, the code and the field.
    """
    source = path if path is not None else resources.files("playbooks") / "catalogue" / "xid.yaml"
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
    return Catalogue(version=file.version, sources=file.sources, xids=xids, recovery_actions=actions, sxids=sxids)


def _entry(code: int, row: _XidRow, file: _File, where: str) -> XidEntry:
    if strange := set(row.sources) - set(file.sources):
        raise CatalogueError(f"{where}: xid {code}: sources: {', '.join(sorted(strange))} not named at the top")
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
        note=row.note,
        sources=row.sources,
    )


def _undescribed(code: int) -> XidEntry:
    return XidEntry(
        code=code,
        mnemonic="",
        meaning="No source describes this number. Keep the line, hold the GPU, let a person look.",
        causes=(),
        blame=Blame.UNKNOWN,
        process_survives=None,
        severity=Severity.UNCLASSIFIED,
        action=Advice.TRIAGE,
        nvidia_immediate="",
        nvidia_investigatory="",
    )


def _convert(data: object, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise CatalogueError(f"{where}: {error}") from error
