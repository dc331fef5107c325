"""One thing to ask a GPU, under the name that stands on the slate, in `errors` and in the message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml

Ask = Callable[[Any], Any]  # from a GPU's handle to a value, or to a dictionary of several fields by name

# This GPU or driver never has it, so it need not be asked again; the last: it knows only an older structure.
ABSENT = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_Deprecated,
    pynvml.NVMLError_ArgumentVersionMismatch,
)


class NvmlReading(NamedTuple):
    """What to ask. If `ask` answers with a dictionary, its item "errors" (calls to words) is about itself."""

    name: str
    ask: Ask


def make_fallback_query(*calls: Ask) -> Ask:
    """Newer and older names of one thing: a call that is not there is not tried again."""
    left = list(calls)

    def ask(handle: Any) -> Any:
        while len(left) > 1:
            try:
                return left[0](handle)
            except ABSENT:
                del left[0]
        return left[0](handle)

    return ask
