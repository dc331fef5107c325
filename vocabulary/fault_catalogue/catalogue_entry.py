"""Catalogue entries of Xids and SXids, with the closed lists of causes and recommended actions. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from vocabulary.finding import Severity


class Cause(str, enum.Enum):
    """Where a fault may come from. `XidEntry.blame` is the likeliest cause, `XidEntry.causes` are all known ones."""

    APPLICATION = "application"
    OPERATOR = "operator"  # a deliberate action
    CONFIGURATION = "configuration"
    DRIVER = "driver"
    FIRMWARE = "firmware"
    SECURITY = "security"  # keys, encryption, confidential computing
    GPU_MEMORY = "gpu_memory"
    GPU = "gpu"
    NVLINK = "nvlink"
    NVSWITCH = "nvswitch"
    PCIE = "pcie"
    HOST = "host"
    THERMAL = "thermal"
    POWER = "power"
    PEER = "peer"  # the device at the other end of a link
    OTHER_ERROR = "other_error"  # a consequence of an error that was reported before
    TEST = "test"
    UNKNOWN = "unknown"


class Advice(str, enum.Enum):
    """The recommended action. The playbook decides; this is the catalogue's advice."""

    NONE = "none"
    WATCH = "watch"
    RESTART_JOB = "restart_job"
    DRAIN_RESET = "drain_reset"  # let work finish, then reset the GPU
    RESET_GPU = "reset_gpu"
    RESET_FABRIC = "reset_fabric"  # all GPUs and switches that are linked, together
    REBOOT_NODE = "reboot_node"
    RESTART_VM = "restart_vm"
    ISOLATE_REPLACE = "isolate_replace"
    HANDS_ON = "hands_on"  # seating, cables
    UPDATE_SOFTWARE = "update_software"
    DECODE = "decode"  # the registers in the line decide
    BY_VALUE = "by_value"  # the number in the line decides
    TRIAGE = "triage"  # a person must look

    @property
    def rank(self) -> int:
        """Order for comparisons: how much it disturbs running work."""
        return _WEIGHT[self]


_WEIGHT = {
    advice: rank
    for rank, advice in enumerate(
        (
            Advice.NONE,
            Advice.WATCH,
            Advice.RESTART_JOB,
            Advice.UPDATE_SOFTWARE,
            Advice.DECODE,
            Advice.BY_VALUE,
            Advice.TRIAGE,
            Advice.DRAIN_RESET,
            Advice.RESTART_VM,
            Advice.RESET_GPU,
            Advice.RESET_FABRIC,
            Advice.REBOOT_NODE,
            Advice.HANDS_ON,
            Advice.ISOLATE_REPLACE,
        )
    )
}


class Generation(str, enum.Enum):
    """GPU generations between which one fault differs, as the catalogue's files write them."""

    OLDER = "older"  # before A100
    AMPERE = "ampere"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"
    GB200 = "gb200"


Condition = str | int | tuple[str | int, ...]


class ReadingRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The meaning of some parts of a line. `when` maps a part to its condition; empty: any line of this number.

    A part is what `vocabulary.driver_log.xid_detail.decode_xid_detail` names, or ``caused_by``, ``pid``, ``process``,
    ``mig``. A condition is a value, one of several, ``not VALUE`` (present, but different), ``any`` (present), ``none``
    (absent). `says` may hold parts in braces. `severity` and `action` come together, and replace those of the entry.
    """

    says: str
    when: Mapping[str, Condition] = {}
    severity: Severity | None = None
    action: Advice | None = None


class XidEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One Xid number. `process_survives` is None if unknown; `gpus` and `recovery_since` as in the file.

    `others` maps the names of other projects to their action where it differs; `why` argues this catalogue's choice.
    """

    code: int
    mnemonic: str
    meaning: str
    causes: tuple[Cause, ...]
    blame: Cause
    process_survives: bool | None
    severity: Severity
    action: Advice
    nvidia_immediate: str
    nvidia_investigatory: str
    alias: str = ""
    gpus: str = ""
    recovery_since: str = ""
    look_at: tuple[str, ...] = ()
    differs: Mapping[Generation, str] = {}
    others: Mapping[str, str] = {}
    why: str = ""
    note: str = ""
    reads: tuple[ReadingRule, ...] = ()
    sources: tuple[str, ...] = ()


class ErrorReach(str, enum.Enum):
    """How far an error of a switch reaches."""

    PORT = "port"
    SWITCH = "switch"
    HEAT = "heat"


class SxidEffect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an error of one reach does to jobs behind either kind of port, and the action when its line says Fatal."""

    fatal: Advice
    access: str  # the port connects a GPU
    trunk: str  # the port connects another switch


class SxidEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One SXid number. `severity` and `action` count only if the line itself states no severity."""

    code: int
    mnemonic: str
    meaning: str
    blame: Cause
    severity: Severity
    action: Advice
    effect: ErrorReach
    others: Mapping[str, str] = {}
    why: str = ""
    note: str = ""
    sources: tuple[str, ...] = ()


class RecoveryAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One value of Xid 154, or of NVML's recovery-action field."""

    meaning: str
    severity: Severity
    action: Advice


def make_undescribed_sxid(code: int) -> SxidEntry:
    """Return an entry for an undescribed SXid: only its line can state the severity."""
    return SxidEntry(
        code=code,
        mnemonic="",
        meaning="No source describes this SXid. The severity in its head line applies.",
        blame=Cause.NVSWITCH,
        severity=Severity.UNCLASSIFIED,
        action=Advice.TRIAGE,
        effect=ErrorReach.PORT,
    )


def make_undescribed_xid(code: int) -> XidEntry:
    """Return an entry for an undescribed Xid, which says so."""
    return XidEntry(
        code=code,
        mnemonic="",
        meaning="No source describes this Xid. Keep the line, hold the GPU, have a person check.",
        causes=(),
        blame=Cause.UNKNOWN,
        process_survives=None,
        severity=Severity.UNCLASSIFIED,
        action=Advice.TRIAGE,
        nvidia_immediate="",
        nvidia_investigatory="",
    )
