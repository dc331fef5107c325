from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from healthctl.kernel_log.offline_xid_grammar import parse_offline_line
from healthctl.kernel_log.quotation import is_quotation
from vocabulary.driver_log.xid_line import format_xid

WORDS = "NVRM: Xid (PCI:0000:07:00): 79, x"
comms = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=15)


@pytest.mark.parametrize(
    "before", ["", "some driver was speaking, ", "nvidia 0000:07:00.0: ", "pcieport 0000:00:01.0: AER: "]
)
def test_words_of_drivers_may_stand_before(before: str) -> None:
    assert not is_quotation(before + WORDS, len(before))


@given(comms, st.sampled_from(["[7] trap int3 ip:4 sp:7 error:0 in ", "[7]: segfault at 0 ip 4 sp 7 error 4 in "]))
@example("Oops: 0 [#1]", "[7]: segfault at 0 ip 4 sp 7 error 4 in ")
def test_nothing_in_the_notice_of_a_crash_is_the_kernels_own_word(comm: str, notice: str) -> None:
    text = comm + notice + WORDS
    assert is_quotation(text, len(comm + notice))
    assert is_quotation(text, 0)


@given(st.sampled_from(["'", '"']), st.text(max_size=40))
def test_nothing_after_a_quote_is_believed(quote: str, rest: str) -> None:
    before = f"tmpfs: Unknown parameter {quote}a{rest}"
    assert is_quotation(before + WORDS, len(before))


@pytest.mark.parametrize("name", ["", "a ", "a, b "])
def test_no_name_of_a_control_group_is_the_kernels_own_word(name: str) -> None:
    before = f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={name}"
    assert parse_offline_line(f"{before}{WORDS},mems_allowed=0,global_oom,task=a,pid=7,uid=0") is None


@given(comms)
@example("a[1]: segfault at")
@example("/x")
@example("' in ")
def test_no_name_of_a_program_hides_its_xid(name: str) -> None:
    assert (
        parse_offline_line(format_xid(31, "0000:07:00.0", pid=7, process=name[:15], detail="Ch 00000002")) is not None
    )
