from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthctl.kernel_log.log_line_parser import ParsedLine, parse_lines
from healthctl.kernel_log.log_transport import LINES_OF_RECORD_MAX
from vocabulary.driver_log.injected_line import mark_injected_line

XID = "NVRM: Xid (PCI:0000:07:00): 79, pid=5, name=python3, GPU has fallen off the bus."
BY_KERNEL = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel"}
HEADER = "Tue 2025-03-04 12:00:00.123456 UTC [s=ab;i=1;b=0;m=3;t=4;x=5]"


def parse(*lines: str) -> list[ParsedLine]:
    return list(parse_lines(lines))


def kinds(*lines: str) -> list[str]:
    return [found.kind for found in parse(*lines)]


@pytest.mark.parametrize("by", [{}, {"_TRANSPORT": "kernel"}, {"SYSLOG_IDENTIFIER": "kernel"}, {"SYSLOG_FACILITY": 0}])
def test_a_journal_record_may_say_little_of_its_author(by: dict[str, object]) -> None:
    assert kinds(json.dumps({"MESSAGE": XID, **by})) == ["xid"]


@pytest.mark.parametrize(
    "by",
    [
        {"_TRANSPORT": "syslog"},
        {"_TRANSPORT": ["kernel", "syslog"]},
        {"SYSLOG_IDENTIFIER": "python3"},
        {"SYSLOG_FACILITY": "1"},
        {"SYSLOG_FACILITY": 3},
    ],
)
def test_one_field_that_names_another_is_enough(by: dict[str, object]) -> None:
    assert kinds(json.dumps({"MESSAGE": XID, **BY_KERNEL, **by})) == ["none"]


def test_a_message_may_be_bytes() -> None:
    text = XID.replace("python3", "py\xff\x1b")
    (found,) = parse(json.dumps({"MESSAGE": list(text.encode("latin-1")), **BY_KERNEL}))
    assert (found.kind, found.xid, found.process) == ("xid", 79, "py\\xff\x1b")


@pytest.mark.parametrize("name", ["_PID", "_COMM", "_EXE", "_SYSTEMD_UNIT"])
def test_a_record_of_a_process_is_none_of_the_kernels(name: str) -> None:
    assert kinds(json.dumps({"MESSAGE": XID, name: "77"})) == ["none"]


def test_the_author_may_be_named_behind_the_message() -> None:
    record = [HEADER, f"    MESSAGE={XID}", "    _TRANSPORT=kernel", "    SYSLOG_IDENTIFIER=kernel"]
    assert kinds(*record) == ["none", "xid", "none", "none"]
    assert kinds(*[line.replace("=kernel", "=app") for line in record], *record[:2]) == ["none"] * 5 + ["xid"]


def test_an_exported_record_ends_with_an_empty_line() -> None:
    record = ["__CURSOR=s=ab;i=1", f"MESSAGE={XID}", "_TRANSPORT=kernel", ""]
    foreign = ["__CURSOR=s=ab;i=2", f"MESSAGE={XID}", "_TRANSPORT=stdout", ""]
    assert kinds(*record, *foreign, *record[:2]) == ["none", "xid", "none", "none"] + ["none"] * 4 + ["none", "xid"]


def test_an_exported_message_with_odd_bytes_is_preceded_by_its_length() -> None:
    record = ["__CURSOR=s=ab;i=1", "MESSAGE", "\x51" + "\0" * 7 + XID, "_TRANSPORT=kernel", ""]
    assert kinds(*record) == ["none", "none", "xid", "none", "none"]


def test_a_record_for_people_is_json_on_many_lines() -> None:
    pretty = json.dumps({**BY_KERNEL, "MESSAGE": XID}, indent="\t").split("\n")
    assert kinds(*pretty) == ["none"] * (len(pretty) - 2) + ["xid", "none"]
    assert set(kinds(*pretty[:-1])) == {"none"}


def test_a_record_that_never_ends_is_none_and_fills_no_memory() -> None:
    found = kinds("{", *["x"] * (3 * LINES_OF_RECORD_MAX), XID)
    assert len(found) == 3 * LINES_OF_RECORD_MAX + 2
    assert found[-1] == "xid"


def test_a_field_of_a_kmsg_record_is_not_its_text() -> None:
    lines = ["6,1,2,-;usb 1-1: new device", " SUBSYSTEM=usb", f" DEVICE={XID}", f"4,2,3,-;{XID}", f" {XID}"]
    assert kinds(*lines) == ["none", "none", "none", "xid", "xid"]


def test_kmsg_escapes_are_taken_back() -> None:
    (found,) = parse(
        r"4,1,2,-;NVRM: Xid (PCI:0000:07:00): 43, pid=5, name=\xd0\xb0\x5cx\x3d\xff, Ch 1\x0aNVRM: Xid (PCI:0000:08:00): 1"
    )
    assert (found.xid, found.process, found.pci) == (43, "а\\x=\\xff", "0000:07:00.0")


def test_an_indented_line_belongs_to_the_author_of_the_line_before() -> None:
    assert kinds("Mar  4 12:00:00 n1 app[7]: a report", f"      {XID}") == ["none", "none"]
    assert kinds("Mar  4 12:00:00 n1 kernel: a report", f"      {XID}") == ["none", "xid"]
    assert kinds("Mar  4 12:00:00 n1 app[7]: a report", f"\t{XID}") == ["none", "none"]
    assert kinds(f"      {XID}") == ["xid"]
    assert kinds("Mar  4 12:00:00 n1 app[7]: a report", f"   Mar  4 12:00:00 n1 kernel: {XID}") == ["none", "xid"]


@pytest.mark.parametrize("before", ["Mar  4 12:00:00 n1 app[7]: x", "> quoted", "12,1,2,-;x", "4,1,2,-;x", "[ 1.0] x"])
def test_a_pasted_line_stands_for_itself(before: str) -> None:
    assert kinds(before, f"  {XID}") == kinds(before, "", f"    {XID}")[::2] == ["none", "xid"]
    assert kinds(before, "\r", f"    {XID}\r") == ["none", "none", "xid"]


def test_a_kernel_line_before_vouches_for_nobody() -> None:
    event = f"  Warning  XidError  2m  kernel-monitor  {XID}"
    assert kinds(f"Mar  4 12:00:00 n1 kernel: {XID}", event, f"    {event}") == ["xid", "none", "none"]


PROBE = [
    "NVRM: The NVIDIA GPU 0000:65:00.0",
    "NVRM: (PCI ID: 10de:2330) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
]


@pytest.mark.parametrize("dress", ["", "[ 1.000000] ", "Mar  4 12:00:00 n1 kernel: "])
def test_the_address_of_a_gpu_missed_at_probe_stands_two_lines_before(dress: str) -> None:
    *before, last = parse(*(dress + line for line in PROBE))
    assert [found.kind for found in before] == ["none", "none"]
    assert (last.kind, last.pci) == ("fallen_off_bus", "0000:65:00.0")


def test_an_address_further_away_is_another_matter() -> None:
    last = parse(PROBE[0], "a", "b", PROBE[2])[-1]
    assert (last.kind, last.pci) == ("fallen_off_bus", None)
    assert kinds(PROBE[0], "NVRM: installed in this system is not supported by open nvidia.ko") == ["none", "none"]
    assert kinds("NVRM: The NVIDIA GPU nonsense:", PROBE[2]) == ["none", "fallen_off_bus"]


def test_colours_nuls_and_line_ends_do_not_matter() -> None:
    coloured = f"\x1b[32m[    1.000000] \x1b[0m\x1b[33mNVRM: \x1b[0m{XID.removeprefix('NVRM: ')}"
    assert kinds(coloured, f"\0\0\0[ 1.000000] {XID}\0", f"\ufeff[ 1.000000] {XID}\r") == ["xid"] * 3


@pytest.mark.parametrize("end", ["", " ", "\r", "  \r\n"])
@pytest.mark.parametrize("cut", ["pid=5", "pid=5, name=python3", "pid=5, name=python3,"])
def test_a_line_may_end_behind_the_process(cut: str, end: str) -> None:
    (found,) = parse(XID[: XID.index("pid=")] + cut + end)
    assert (found.pid, found.process) == (5, "python3" if "name" in cut else "")


def test_a_killed_process_is_named_whatever_ends_the_line() -> None:
    for said in ("Out of Memory: Killed process 7 (a b).", "Out of memory: Killed process 7 (a b)\r"):
        (found,) = parse(said)
        assert (found.kind, found.pid, found.process) == ("oom", 7, "a b")


def test_json_may_be_a_member_of_a_list() -> None:
    record = json.dumps({"MESSAGE": XID, **BY_KERNEL})
    assert kinds("[", f"  {record},", f"  {record}", "]") == ["none", "xid", "xid", "none"]


def test_a_reporter_is_no_process_that_asked_for_memory() -> None:
    said = "java invoked oom-killer: gfp_mask=0xd0, order=0"
    assert kinds(said, f"Web Content{said[4:]}", f"[ 1.0] {said}") == ["oom"] * 3
    assert kinds(f'"{said}"', f"e.g. the usual: {said}", f"# {said}", f"the process called {said}") == ["none"] * 4


def test_a_marked_line_is_a_test_whoever_wrote_it() -> None:
    marked = mark_injected_line("n1", XID)
    for line in (marked, f"12,1,2,-;{marked}", f"n1 app[7]: {marked}", json.dumps({"MESSAGE": marked, "_PID": "7"})):
        (found,) = parse(line)
        assert (found.kind, found.xid, found.injected) == ("xid", 79, True)
    (found,) = parse(mark_injected_line("n1", "EDAC MC0: 1 UE memory read error on DIMM_A1 (channel:0)"))
    assert (found.kind, found.injected) == ("ecc", True)


FRAGMENTS = [
    *(
        XID,
        XID[:27],
        "SXid (",
        "nvidia-nvswitch1: ",
        "<4>",
        "<12>",
        "4,1,1,c;",
        "\\x0a",
        "\x1b[0m",
        "[  1.5] ",
        "{",
        "}",
    ),
    *(
        "Mar  4 12:00:00 n1 kernel: ",
        "MESSAGE=",
        '{"MESSAGE":',
        "__CURSOR=",
        HEADER,
        "    ",
        "gpu-healthd-inject node=n: ",
    ),
    *(
        "AER: ",
        "EDAC MC0: ",
        "mce: [Hardware Error]: ",
        "mlx5_core 0000:07:00.0: ",
        "Out of memory: Killed process 1 (",
    ),
    *(
        "message repeated 3 times: [ ",
        "\0",
        "\r",
        "invoked oom-killer: ",
        "NVRM: The NVIDIA GPU 0000:65:00.0",
        "[[[[",
        "]",
    ),
]
lines = st.lists(
    st.one_of(st.text(max_size=40), st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=5))).map("".join)),
    max_size=12,
)


@given(lines)
def test_there_is_one_answer_for_each_line_whatever_it_holds(lines: list[str]) -> None:
    assert [found.line_no for found in parse_lines(lines)] == list(range(1, len(lines) + 1))


@given(
    st.sampled_from(["app[7]", "kernel[7]", "app", "NVRM", "a/b[1]", "(x)[2]", "nvidia-smi", "systemd[1]"]),
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=5)), max_size=6).map("".join),
)
def test_a_foreign_author_never_yields_a_kind(author: str, said: str) -> None:
    (found,) = parse(f"Mar  4 12:00:00 n1 {author}: {said}".replace("gpu-healthd-inject", ""))
    assert found.kind == "none"


def test_a_very_long_line_is_read_in_linear_time() -> None:
    for line in ("NVRM: Xid (" * 90_000, "[ 1.0] " * 150_000, "EDAC MC0: " * 100_000, "A" * 1_000_000, "[1]" * 300_000):
        assert len(parse(line, f"Mar  4 12:00:00 n1 kernel: {line}", f"4,1,2,-;{line}", f"{{{line}")) == 4
