"""Before there are threads everything is gathered: msgspec, asked for one type by two at once, has ended healthd (SIGSEGV)."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from vocabulary.messages import message_decoders

FIRST_DECODE = """
import sys
from vocabulary.messages import message_decoders
from vocabulary.messages.wire import Report, decode_message, WireError
if {build}:
    message_decoders.build_decoders()
calls = []
sys.setprofile(lambda frame, event, _: event == "call" and calls.append(frame.f_code.co_name))
try:
    decode_message(b"{{}}", Report)
except WireError:
    pass
sys.setprofile(None)
print(calls.count("get_class_annotations"))
"""


@pytest.mark.parametrize("build", [True, False])
def test_a_first_decode_gathers_nothing_any_more(build: bool) -> None:  # noqa: FBT001 - a parameter of the test
    script = FIRST_DECODE.format(build=build)
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=90)
    assert (int(done.stdout) == 0) is build


def test_a_type_that_nobody_can_decode_is_passed_over() -> None:
    class Odd(msgspec.Struct):
        what: Missing  # type: ignore[name-defined]  # noqa: F821 - the point

    message_decoders.build_decoders()
    with pytest.raises(NameError):
        msgspec.json.Decoder(Odd)
