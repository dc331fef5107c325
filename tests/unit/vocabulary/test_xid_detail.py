from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocabulary.driver_log.xid_detail import decode_xid_detail
from vocabulary.driver_log.xid_line import KernelEvent, KernelEventKind, parse_live_record

FAULT = (
    "channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC0 GPCCLIENT_T1_0 faulted @ 0x7f2a_00000000."
    " Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
)
CORPUS = (Path(__file__).parents[2] / "golden" / "xid" / "lines.log").read_text().splitlines()


def detail(code: int, text: str) -> dict[str, str | int]:
    event = parse_live_record(f"NVRM: Xid (PCI:0000:07:00): {code}, pid=1, name=x, {text}")
    assert event is not None
    return decode_xid_detail(event)


@pytest.mark.parametrize(
    ("code", "text", "found"),
    [
        (
            31,
            FAULT,
            {
                "engine": "GRAPHICS",
                "client": "GPCCLIENT_T1_0",
                "virtual_address": "0x7f2a_00000000",
                "fault": "FAULT_PDE",
                "access": "ACCESS_TYPE_VIRT_READ",
            },
        ),
        (
            31,
            "Ch 00000013, intr 10000000. MMU Fault: ENGINE CE3 HUBCLIENT_CE1 faulted @ 0x7f01_8000",
            {"engine": "CE3", "client": "HUBCLIENT_CE1", "virtual_address": "0x7f01_8000"},
        ),
        (
            13,
            "Graphics SM Warp Exception on (GPC 2, TPC 5, SM 1): Out Of Range Address",
            {"exception": "Warp", "gpc": 2, "tpc": 5, "sm": 1, "reason": "Out Of Range Address"},
        ),
        (
            13,
            "Graphics Exception: ESR 0x505730=0x201000e 0x505734=0x24",
            {"esr": "0x505730=0x201000e 0x505734=0x24"},
        ),
        (
            48,
            "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0xe9b9107e0 partition 3, subpartition 0.",
            {"unit": "framebuffer", "physical_address": "0xe9b9107e0", "partition": "3", "subpartition": 0},
        ),
        (
            171,
            "GDDR, Uncorrectable DRAM error in FBPA 3 subpartition 0 physAddr 0xe9b9107e0",
            {"physical_address": "0xe9b9107e0", "partition": "3", "subpartition": 0},
        ),
        (
            63,
            "Dynamic Page Retirement: New page retired, reboot to activate (0x00000000000f3c3e).",
            {"page": "0x00000000000f3c3e"},
        ),
        (
            63,
            "Row Remapper: New row (0x0000000001a6f3) marked for remapping, reset gpu to activate.",
            {"row": "0x0000000001a6f3"},
        ),
        (
            94,
            "Contained: SM (0x1). RST: No, D-RST: No",
            {"containment": "Contained", "unit": "SM", "reset": "No", "drain_reset": "No"},
        ),
        (
            95,
            "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
            {"containment": "Uncontained", "unit": "LTC TAG", "reset": "Yes", "drain_reset": "No"},
        ),
        (
            74,
            "NVLink: fatal error detected on link 11(0x10000, 0x0, 0x0)",
            {"nvlink": 11, "registers": "0x10000, 0x0, 0x0"},
        ),
        (
            119,
            "Timeout after 45s of waiting for RPC response from GPU2 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).",
            {"waited_s": 45, "function": 76, "rpc": "GSP_RM_CONTROL", "arguments": "0x20800a4c 0x4"},
        ),
        (
            119,
            "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 103 (GSP_RM_ALLOC) sequence 9 (0x1 0x2).",
            {"waited_s": 6, "function": 103, "rpc": "GSP_RM_ALLOC", "sequence": 9, "arguments": "0x1 0x2"},
        ),
        (119, "Timeout after 45s of waiting for RPC response from GPU0 GSP!", {"waited_s": 45}),
        (
            120,
            "GSP task exception: load access page fault (cause:0xd) @ pc:0x13636b2, partition:2#0, task:3, gfid: 0",
            {
                "exception": "exception: load access page fault",
                "cause": "0xd",
                "pc": "0x13636b2",
                "partition": "2#0",
                "task": 3,
            },
        ),
        (
            109,
            "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
            {"error": "CTX SWITCH TIMEOUT", "info": "0x58005"},
        ),
        (74, "NVLink: failed to train link 3 to remote PCI:0000:85:00", {"nvlink": 3}),
        (136, "NVLink: error on link 4(0x1, 0x2)", {"nvlink": 4, "registers": "0x1, 0x2"}),
        (119, "Timeout waiting for RPC from GSP!", {}),
        (
            149,
            "NETIR_LINK_EVT Fatal   XC0 i0 Link 07 (0x02a001c6 0x00000000 0x0 0x0 0x0 0x0 0x0)",
            {
                "unit": "NETIR_LINK_EVT",
                "word": "fatal",
                "cross_contained": 0,
                "driver_injected": 0,
                "nvlink": 7,
                "interrupt": "0x02a001c6",
                "status": "0x00000000",
                "debug": "0x0 0x0 0x0 0x0 0x0",
                "reason": 42,
            },
        ),
        (
            150,
            "MSE Degraded Fatal XC1 i0 Link -1 (0x00000000 0xffff",
            {
                "unit": "MSE Degraded",
                "word": "fatal",
                "cross_contained": 1,
                "driver_injected": 0,
                "nvlink": -1,
                "interrupt": "0x00000000",
                "status": "0xffff",
            },
        ),
        (
            145,
            "RLW_SRC_TRACK Nonfatal XC0 i0 Link 03",
            {"unit": "RLW_SRC_TRACK", "word": "nonfatal", "cross_contained": 0, "driver_injected": 0, "nvlink": 3},
        ),
        (154, "GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)", {"action": "reboot"}),
        (154, "GPU recovery action changed from 0x0 (None) to 0x9 (Something New)", {"action": "unknown (9)"}),
        (79, "GPU has fallen off the bus.", {}),
    ],
)
def test_the_drivers_words_are_taken_apart(code: int, text: str, found: dict[str, str | int]) -> None:
    assert detail(code, text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("20034, Fatal, Link 30 LTSSM Fault Up", {"word": "fatal"}),
        (
            "12028, Severity 0 Engine instance 32 Sub-engine instance 00",
            {"switch_severity": 0, "engine": 32, "sub_engine": 0},
        ),
        ("12028, Data {0x00140004, 0x00100000}", {"data": "0x00140004, 0x00100000"}),
        ("12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", {"word": "nonfatal"}),
    ],
)
def test_the_lines_of_a_switch_are_taken_apart(text: str, found: dict[str, str | int]) -> None:
    event = parse_live_record(f"nvidia-nvswitch3: SXid (PCI:0000:85:00.0): {text}")
    assert event is not None
    assert decode_xid_detail(event) == found


@given(st.integers(0, 200), st.text(max_size=2000))
def test_any_words_are_decoded_or_not_and_stay_short(code: int, text: str) -> None:
    found = decode_xid_detail(KernelEvent(kind=KernelEventKind.XID, code=code, detail=text))
    assert all(len(str(value)) <= 300 for value in found.values())


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (13, "ESR 0x1=0x2" + " 0xffffffffffffffff=0xffffffffffffffff" * 90),
        (74, "link 7(0x1" + ", 0xffffffffffffffff" * 90),
        (149, "NETIR Fatal XC0 i0 Link 07 (0x1" + " 0xffffffffffffffff" * 90),
    ],
)
def test_however_long_a_line_is_each_part_of_it_stays_short(code: int, text: str) -> None:
    assert all(0 < len(str(value)) <= 300 for value in detail(code, text).values())
    assert detail(code, text)


@given(st.sampled_from([line for line in CORPUS if "Xid" in line]), st.integers(0, 400))
def test_a_line_that_was_cut_does_no_harm(line: str, at: int) -> None:
    event = parse_live_record(line[:at])
    if event is not None:
        decode_xid_detail(event)
