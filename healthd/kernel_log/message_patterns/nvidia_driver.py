"""NVIDIA driver messages besides Xids and SXids (open-gpu-kernel-modules; the modules nvidia, nvidia-peermem)."""

from __future__ import annotations

from healthd.kernel_log.message_patterns.line_pattern import PCI, PatternFamily, make_pattern
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind

_GPU = r"NVRM: (?:GPU )?(?:at )?(?:PCI:)?(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?)"

# The function that prints the line. Its name is longer than what is left of a task's name behind "NVRM: ".
_FUNCTION = r"NVRM: (?:GPU\d{1,3} )?(?:nvidia_open|\w{12,80}): "

NVIDIA = PatternFamily(
    check="nvidia_driver",
    kind=ComponentKind.HOST,
    words=(
        "NVRM",
        "nvidia-peermem",
        "nvidia_peermem",
        "nv_peer_mem",
        "nvidia-nvlink",
        "nvidia: probe",
        "with driver nvidia",
    ),
    forms=(
        make_pattern(
            "init_failed",
            Severity.FATAL,
            "the driver could not start the GPU",
            rf"{_GPU}: (?:RmInitAdapter failed! \((?P<error>[0-9a-fx:]{{1,40}})\)|rm_init_adapter failed)",
        ),
        make_pattern(
            "init_failed",
            Severity.FATAL,
            "the driver could not start a GPU",
            r"NVRM: (?:RmInitAdapter failed! \((?P<error>[0-9a-fx:]{1,40})\)|rm_init_adapter failed)",
        ),
        make_pattern("lost", Severity.FATAL, "the GPU is lost", rf"{_GPU}: GPU (?:is|has been) lost"),
        make_pattern("lost", Severity.FATAL, "a GPU is lost", rf"{_FUNCTION}GPU (?:is|has been) lost\b"),
        # Warning: it names no GPU, and NVML, which does, reports that GPU lost within a second.
        make_pattern(
            "unreachable",
            Severity.WARNING,
            "the driver cannot read from a GPU",
            rf"{_FUNCTION}.{{0,80}}?(?:GPU lost from the bus|Check whether GPU is present on the bus|GPU_ATTACHED_SANITY_CHECK failed)",
        ),
        make_pattern(
            "unmapped",
            Severity.ERROR,
            "the firmware assigned no address to the GPU's memory",
            rf"NVRM: BAR(?P<bar>\d) is \d{{1,9}}M @ 0x0{{1,16}} \(PCI:{PCI}\)",
        ),
        make_pattern(
            "probe_failed",
            Severity.ERROR,
            "the driver did not bind to the GPU",
            rf"nvidia(?:: probe of)? {PCI}(?:: probe with driver nvidia)? failed with error (?P<error>-\d{{1,5}})",
        ),
        make_pattern(
            "probe_failed",
            Severity.ERROR,
            "the driver bound to none of the GPUs, or not to all",
            r"NVRM: The NVIDIA probe routine failed for (?P<devices>\d{1,3}) device",
        ),
        make_pattern(  # information: any container with an old libcuda causes it
            "mismatch",
            Severity.INFO,
            "a program uses a driver library of another version than the kernel module",
            r"NVRM: API mismatch: (?s:.{0,60}?)version (?P<client>\d[\d.]{1,20}\d)(?s:.{1,120}?)version (?P<module>\d[\d.]{1,20}\d)",
        ),
        make_pattern(
            "gsp",
            Severity.WARNING,
            "the GPU's own processor repeatedly does not answer",
            r"NVRM: Rate limiting GSP RPC error prints for GPU at PCI:(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})",
        ),
        make_pattern(
            "gsp",
            Severity.WARNING,
            "the GPU's own processor answers late or not at all",
            rf"(?!NVRM: _kgspLogXid){_FUNCTION}.{{0,120}}?(?:GSP .{{0,40}}?(?:[Tt]imed? ?out|TIMEOUT)|[Tt]imeout .{{0,80}}?\bGSP\b|GSP heartbeat|waiting for RPC response from GSP|[Hh]eartbeat timed out|rpcRecvPoll timed ?out)",
        ),
        make_pattern(
            "gsp",
            Severity.WARNING,
            "the firmware of the GPU's own processor has crashed",
            rf"{_FUNCTION}\*{{3,80}} (?P<report>GSP-CrashCat|LibOS Task Watchdog) Report",
        ),
        make_pattern(
            "nvlink",
            Severity.WARNING,
            "the driver could not set up NVLink",
            r"NVRM: (?:GPU\d{1,3} )?(?:\w{5,40}[nN]vlink\w{0,60}|\w{0,4}[nN]vlink\w{5,60}): "
            r"(?P<error>.{0,120}?(?:[Ff]ail|[Ee]rror|[Dd]egraded).{0,60})",
        ),
        make_pattern(  # information: a network interface may be called "nvidia-nvlink"
            "nvlink",
            Severity.INFO,
            "the driver could not set up NVLink",
            r"nvidia-nvlink: (?P<error>(?:[Ff]ailed|[Uu]nable|ERROR"
            r"|(?:[Nn]v[Ll]ink |NVLink |[Ll]ink \d).{0,120}?(?:[Ff]ail|[Ee]rror|[Dd]egraded)).{0,60})",
        ),
        make_pattern(  # information: a program that ends during transfers causes it
            "peermem",
            Severity.INFO,
            "GPU memory could not be shared with a network adapter",
            r"(?:nvidia[-_]peermem|nv_peer_mem):? (?P<error>\w{1,60}:\d{1,5} ERROR .{0,120})",
        ),
        make_pattern(
            "crash_dump",
            Severity.INFO,
            "the driver stored a dump of a crashed GPU",
            r"NVRM: A GPU crash dump has been created",
        ),
    ),
)
