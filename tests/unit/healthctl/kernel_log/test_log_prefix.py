from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthctl.kernel_log.log_prefix import Author, StrippedRecord, extract_kernel_text, strip_log_prefix
from healthctl.kernel_log.offline_xid_grammar import parse_offline_line
from vocabulary.driver_log.xid_line import KernelEventKind

TEXT = "NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus."

BY_THE_KERNEL = """\
[  117.984502]_
[ 1.2]_
[123]_
[    1.234567][ T1946]_
[    1.234567] [  T1946]_
[    1.234567][    C0]_
[  +6.010643]_
[  117.984502 <    0.000001>]_
[Mar 4 12:00]_
[Tue Mar  4 12:00:00 2025]_
[Tue Mar  4 12:00:00 2025 <    0.000001>]_
[二 4月 28 21:22:27 2020]_
[2023-06-22 21:55:31.352444][5975153.869131]_
[2025-03-04 12:00:00] n1 kernel:_
[2025-03-04T12:00:00.123456+00:00] kernel: [  117.984502]_
[  117.984502] kernel:_
/var/log/dmesg.0:[  117.984502] kernel:_
2025-03-04T12:00:00,123456+00:00_
kern  :warn  : [  117.984502]_
kern  :err   : 2025-03-04T12:00:00,123456+00:00_
kern  :err   : [Tue Mar  4 12:00:00 2025]_
4,362,34101472,c;
4,363,34101473,-,caller=T99;
4,364,34101474;
[...] n1 kernel:_
<4>
<4>[  117.984502]_
Mar 04 12:00:00 n1 kernel:_
Mar  4 12:00:00 n1 kernel: [  117.984502]_
Mar  4 12:00:00 n1 kernel:[  117.984502]_
Mar  4 12:00:00 n1 kernel: <4>[  117.984502]_
Mar 04 12:00:00.123456 n1 kernel:_
Mar 04 12:00:00 kernel:_
Mar  4 2025 12:00:00 n1 kernel:_
Mar  4 12:00:00 fe80::1 kernel:_
Mar  4 12:00:00 n1 kern.warn kernel:_
Tue Mar  4 12:00:00 2025 kern.warn kernel: [  117.984502]_
févr. 04 12:00:00 n1 kernel:_
фев 12 00:48:02 n1 kernel:_
6月 28 02:52:53 n1 kernel:_
2025-03-04T12:00:00+0000 n1 kernel:_
2025-03-04T12:00:00.123456+00:00 n1 kernel: [  117.984502]_
2025-03-04T12:00:00,123456+00:00 n1 kernel:_
2025-03-04T12:00:00Z kernel:_
2025-03-04 12:00:00 n1 kernel:_
Tue 2025-03-04 12:00:00 UTC n1 kernel:_
Tue 2025-03-04 12:00:00.123456 CEST n1 kernel:_
2025-03-04 12:00:00 UTC n1 kernel:_
[  117.984502] n1 kernel:_
1741089600.123456 n1 kernel:_
sep 03 13:48:46 <hostname-redacted> kernel:_
2025-03-04T12:00:00+03:00 <pc> kernel:_
n1 kernel:_
kernel: [  117.984502]_
<4>Mar  4 12:00:00 n1 kernel: [  117.984502]_
<4>1 2025-03-04T12:00:00.123456+00:00 n1 kernel - - -_
1 2025-03-04T12:00:00Z n1 kernel - - [meta@1 sequenceId="2 \\"] "][b@1]_
n1: kern: warning: [2025-03-04T12:00:00.123456789Z]:_
2025-03-04T12:00:00.123Z cpu12:2097898)
2025-03-04T12:00:00.123Z In(182) vmkernel: cpu10:2099084 opID=a9f5cca4)
/var/log/syslog:Mar  4 12:00:00 n1 kernel:_
kern.log.1:412:Mar  4 12:00:00 n1 kernel:_
   24  Mar  4 12:00:00 n1 kernel:_
412:[  117.984502]_
node01: [  117.984502]_
x4115c7s4b0n0:[Wed Nov  8 13:03:59 2023]_
gpu-001: Mar  4 12:00:00 n1 kernel:_
n1 login: [  117.984502]_
2025 Mar  4 12:00:00 n1 kernel:_
Mar  4 12:00:00 <kern.warn> n1 kernel:_
"""

BY_OTHERS = """\
Mar  4 12:00:00 n1 app[12]:_
Mar  4 12:00:00 n1 app:_
Mar  4 12:00:00 app:_
Mar  4 12:00:00 n1 NVRM:_
Mar  4 12:00:00 n1 (sd-pam)[12]:_
Mar  4 12:00:00 n1 gnome shell[12]:_
Mar  4 12:00:00 n1 nvc:[driver][12]:_
Mar  4 12:00:00 n1 kernel[4242]:_
Mar  4 12:00:00 n1 app[77]: Mar  4 11:59:59 n1 kernel:_
Mar  4 12:00:00 n1 app: [  117.984502]_
node01: Mar  4 12:00:00 n1 app[77]:_
Mar  4 12:00:00 n1 user.warn kernel:_
Mar  4 12:00:00 app: kernel:_
2025-03-04T12:00:00+0000 n1 app[991]:_
2025-03-04T12:00:00.123456789Z stdout F_
Tue 2025-03-04 12:00:00 UTC n1 foo.service[12]:_
[  117.984502] n1 systemd[1]:_
1741089600.123456 n1 app[12]:_
user  :warn  : [  117.984502]_
syslog:err   : 2025-03-04T12:00:00,123456+00:00_
12,362,34101472,-;
12,363,34101473;
<12>
<12>[38889.018130]_
<12>Mar  4 12:00:00 n1 kernel:_
<12>1 2025-03-04T12:00:00Z n1 kernel - - -_
<4>1 2025-03-04T12:00:00Z n1 app 12 - -_
n1: user: warning: [2025-03-04T12:00:00.123456789Z]:_
>_
> [  117.984502]_
>> Mar  4 12:00:00 n1 kernel:_
"""

UNNAMED = ["", "[...] ", "2025-03-04 12:00:00 UTC ", "Mar  4 12:00:00 ", "19:14:02  ", "2025-03-04T12:00:00Z ", "12: "]


def prefixes(table: str) -> list[str]:
    return [line.replace("_", " ") for line in table.splitlines()]


@pytest.mark.parametrize("prefix", prefixes(BY_THE_KERNEL))
def test_the_kernels_name_is_known_in_every_dress(prefix: str) -> None:
    assert strip_log_prefix(prefix + TEXT) == StrippedRecord(TEXT, Author.KERNEL)
    event = parse_offline_line(prefix + TEXT)
    assert event is not None
    assert (event.kind, event.code) == (KernelEventKind.XID, 79)


@pytest.mark.parametrize("prefix", prefixes(BY_OTHERS))
def test_another_author_is_no_witness(prefix: str) -> None:
    assert strip_log_prefix(prefix + TEXT).author is Author.OTHER
    assert extract_kernel_text(prefix + TEXT) is None
    assert parse_offline_line(prefix + TEXT) is None


@pytest.mark.parametrize("prefix", UNNAMED)
def test_a_date_alone_names_nobody(prefix: str) -> None:
    assert strip_log_prefix(prefix + TEXT) == StrippedRecord(TEXT, Author.UNNAMED)


@pytest.mark.parametrize("level", ["INFO", "WARN", "ERROR", "DEBUG", "CRIT", "FATAL", "TRACE"])
@pytest.mark.parametrize("date", ["2025-03-04 12:00:00", "2025-03-04 12:00:00,123", "2025-03-04T12:00:00Z", "12:00:00"])
def test_a_level_behind_a_date_is_no_name_of_a_zone(date: str, level: str) -> None:
    assert strip_log_prefix(f"{date} {level} {TEXT}").author is Author.OTHER


def test_what_a_terminal_was_told_has_no_blank_behind_the_kernels_name() -> None:
    for text in (TEXT, "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal", "{1}[Hardware Error]: x"):
        assert strip_log_prefix(f"kernel:{text}") == StrippedRecord(text, Author.KERNEL)


def test_a_label_of_a_rank_is_no_stamp() -> None:
    assert strip_log_prefix(f"[0]: {TEXT}").author is Author.UNNAMED
    assert strip_log_prefix(f"[ 2] {TEXT}") == StrippedRecord(TEXT, Author.KERNEL)


def test_devices_are_no_host_and_program() -> None:
    for text in ("pcieport 0000:00:1c.0: AER: x", "EDAC MC0: 1 CE x", "mlx5_core 0000:5e:00.0: x", "mlx4_en: eth2: x"):
        assert extract_kernel_text("2025-03-04T12:00:00,123456+00:00 " + text) == text
        assert extract_kernel_text("Mar  4 12:00:00 " + text) == text
        assert extract_kernel_text("[    1.234567] " + text) == text


@given(st.text(max_size=300))
def test_any_text_can_be_undressed(text: str) -> None:
    undressed = strip_log_prefix(text)
    assert undressed.text in text
