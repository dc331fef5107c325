from __future__ import annotations

import pytest

from healthctl.kernel_log.log_line_parser import parse_lines
from vocabulary.driver_log.fabric_manager_event import parse_switch_error

TOLD = "detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 61"
LINE = f"[Feb 04 2025 10:11:12] [ERROR] [tid 1234] {TOLD}"


def test_an_error_is_the_sxid_of_the_same_number() -> None:
    event = parse_switch_error(LINE)
    assert event is not None
    assert (event.code, event.word, event.pci, event.link) == (12028, "Non-fatal", "0000:86:00.0", 61)
    assert parse_switch_error("[Feb 04 2025 10:11:12] [INFO] [tid 1] all is well") is None


def test_its_own_log_is_read_line_by_line() -> None:
    first, second = parse_lines([LINE, "[Feb 04 2025 10:11:13] [INFO] [tid 1] all is well"])
    assert (first.kind, first.sxid, first.pci, first.xid) == ("sxid", 12028, "0000:86:00.0", None)
    assert second.kind == "none"


@pytest.mark.parametrize(
    "quoted", [TOLD, f"> {LINE}", f'app: saw "{LINE}"', f"Mar  4 12:00:00 n1 app[7]: {LINE}", f"INFO {LINE}"]
)
def test_whoever_quotes_it_is_no_witness(quoted: str) -> None:
    assert [found.kind for found in parse_lines([quoted])] == ["none"]
