"""NVIDIA's network adapters (kernel drivers/net/ethernet/mellanox/mlx5/core: events.c, health.c, cmd.c, en_main.c).

A lost link or cable is only recorded: unused ports print this at every boot. The sources `infiniband` and `ethernet`
detect ports that were up and are down.
"""

from __future__ import annotations

from healthd.kernel_log.message_patterns.line_pattern import PCI, PatternFamily, make_pattern
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind

_DEVICE = rf"mlx5_core {PCI}"
_CABLE = r"Port module event(?:\[error\])?: module (?P<module>\d{1,3}), "

MLX5 = PatternFamily(
    check="mlx5",
    kind=ComponentKind.NIC_PORT,
    words=("mlx5_core", "(mlx5_"),
    forms=(
        make_pattern(
            "link_down",
            Severity.INFO,
            "a network port lost its link",
            rf"{_DEVICE}(?: (?P<port>[\w.-]{{1,20}}))?:? Link down",
        ),
        make_pattern(
            "cable_error",
            Severity.WARNING,
            "a network cable or transceiver is faulty",
            rf"{_DEVICE}.{{0,60}}?{_CABLE}Cable error, (?P<error>[^\n]{{1,60}})",
        ),
        make_pattern(
            "cable_unplugged",
            Severity.INFO,
            "a network cable was unplugged",
            rf"{_DEVICE}.{{0,60}}?{_CABLE}Cable unplugged",
        ),
        make_pattern(
            "hot", Severity.WARNING, "a network adapter is too hot", rf"{_DEVICE}.{{0,80}}?High [Tt]emperature"
        ),
        make_pattern(
            "power",
            Severity.WARNING,
            "a network adapter's slot gives too little power",
            rf"{_DEVICE}.{{0,80}}?Detected insufficient power on the PCIe slot",
        ),
        make_pattern(
            "compromised",
            Severity.ERROR,
            "a network adapter's firmware does not work",
            rf"{_DEVICE}.{{0,80}}?(?:device's health compromised|[Hh]ealth_care.{{0,40}}handling bad device|firmware internal error|unrecoverable hardware error|irisc not responding|firmware CRC error|HW fatal error|health recovery flow aborted|Fatal error \d{{1,3}} detected|PCI slot is unavailable)",
        ),
        make_pattern(
            "health",
            Severity.WARNING,
            "a network adapter's firmware had an error",
            rf"{_DEVICE}.{{0,80}}?Health issue observed, (?P<error>[^\n]{{1,80}})",
        ),
        make_pattern(
            "command_timeout",
            Severity.WARNING,
            "a network adapter does not answer its driver",
            rf"{_DEVICE}.{{0,120}}?timeout\. Will cause a leak of a command resource",
        ),
        make_pattern(
            "tx_timeout",
            Severity.WARNING,
            "a network adapter does not send",
            rf"{_DEVICE}.{{0,40}}?(?:TX timeout detected|NETDEV WATCHDOG: .{{0,20}}transmit queue \d{{1,5}} timed out)",
        ),
        make_pattern(
            "tx_timeout",
            Severity.WARNING,
            "a network adapter does not send",
            r"NETDEV WATCHDOG: (?P<place>[\w.-]{1,20}) \(mlx5_\w{1,20}\): transmit queue (?P<queue>\d{1,5}) timed out",
        ),
        make_pattern(
            "rx_timeout",
            Severity.WARNING,
            "a network adapter does not receive",
            rf"{_DEVICE} (?P<port>[\w.-]{{1,20}}): RX timeout on channel: (?P<channel>\d{{1,5}}),",
        ),
    ),
)
