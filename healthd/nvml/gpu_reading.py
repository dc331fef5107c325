"""One query of a GPU, under the name used on the call page, in `errors` and in the message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml

Ask = Callable[[Any], Any]  # from a GPU's handle to a value, or to a dictionary of several fields

# This GPU or driver never has it, so it is not queried again; the last code: it knows only an older structure.
ABSENT = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_Deprecated,
    pynvml.NVMLError_ArgumentVersionMismatch,
)


class NvmlReading(NamedTuple):
    """One query. If `ask` returns a dictionary, its item "errors" (call to message) is about itself."""

    name: str
    ask: Ask


def make_fallback_query(*calls: Ask) -> Ask:
    """Return a query that tries newer and older names of a call and remembers which are missing."""
    left = list(calls)

    def ask(handle: Any) -> Any:
        while len(left) > 1:
            try:
                return left[0](handle)
            except ABSENT:
                del left[0]
        return left[0](handle)

    return ask
