"""A form of line: how it is recognised, what it means, and how grave that is."""

from __future__ import annotations

import re
from typing import NamedTuple

from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind


class Form(NamedTuple):
    """One form. Its pattern's groups name the component (`pci`, `place`) and the evidence (all others).

    `clears`: the line says that what `code` told of is over. A form of severity INFO is recorded, and no more: something
    else tells whether it lasts.
    """

    code: str
    severity: Severity
    summary: str
    pattern: re.Pattern[str]
    clears: bool = False


class Family(NamedTuple):
    """Lines of one part of the kernel. The check speaks as `check`; `words` are strings one of which every line has.

    `kind` is what the lines are about, unless they name the PCI address of a GPU.
    """

    check: str
    kind: ComponentKind
    words: tuple[str, ...]
    forms: tuple[Form, ...]


def form(code: str, severity: Severity, summary: str, pattern: str, *, clears: bool = False) -> Form:
    """A form from its pattern's text, which is searched anywhere in a line."""
    return Form(code, severity, summary, re.compile(pattern), clears)


PCI = r"(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
