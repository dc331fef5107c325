"""What tests of both readings of a kernel line share: the corpus, and lines as hypothesis draws them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

CORPUS = Path(__file__).parents[2] / "golden" / "xid"
PROBE = (
    "NVRM: The NVIDIA GPU 0000:65:00.0\n"
    "NVRM: (PCI ID: 10de:2330) installed in this system has\n"
    "NVRM: fallen off the bus and is not responding to commands."
)

pcis = st.builds("{:04x}:{:02x}:{:02x}.0".format, st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F))
# Whatever a user may call a process, as long as its end can be told: the kernel cuts it at fifteen bytes.
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=15).filter(
    lambda name: not name.endswith(",") and not (len(name) > 1 and name[0] == name[-1] == "'") and name != "<unknown>"
)
details = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200).map(str.strip)
plain_details = details.filter(lambda text: "caused by" not in text and "recovery action" not in text)
_FRAGMENTS = [
    "NVRM: Xid (",
    "PCI:0000:07:00",
    "): ",
    "79,",
    " pid=",
    "name=",
    "SXid (",
    "nvidia-nvswitch1: ",
    "<3>",
    "4,1,1,c;",
]
texts = st.one_of(st.text(), st.lists(st.one_of(st.sampled_from(_FRAGMENTS), st.text(max_size=9))).map("".join))


def lines(name: str) -> list[str]:
    return [line for line in (CORPUS / name).read_text().splitlines() if not line.startswith("#")]
