"""The Xid catalogue: what each number means, whom it blames, how bad it is, and what we would do about it.

The knowledge itself is data, read by `vocabulary.catalogue_file`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from vocabulary.finding import Severity
from vocabulary.xid import KernelEvent, KernelEventKind


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


_SXID_WORDS = {"Fatal": Severity.FATAL, "Non-fatal": Severity.WARNING}


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
