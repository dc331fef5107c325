"""Formats names, numbers, durations and locations, the same in text, HTML and JUnit. Pure."""

from __future__ import annotations

from preflight.results import Expectation, Figure, Location, Outcome, Source

SOURCES = {
    Source.EXACT: "exact",
    Source.PHYSICAL: "physical limit",
    Source.SKU: "product table",
    Source.SIBLINGS: "siblings",
    Source.FLEET: "fleet",
    Source.HISTORY: "own history",
}
OUTCOMES = {
    Outcome.PASS: "pass",
    Outcome.FAIL: "FAIL",
    Outcome.HANG: "HANG",
    Outcome.ERROR: "error",
    Outcome.NOT_RUN: "not run",
    Outcome.NOT_APPLICABLE: "–",
}
SIGNS = {  # where there is no room for words
    Outcome.PASS: "✓",
    Outcome.FAIL: "✗",
    Outcome.HANG: "∞",
    Outcome.ERROR: "?",
    Outcome.NOT_RUN: "○",
    Outcome.NOT_APPLICABLE: "–",
}
THE_NODE = "node"  # for results without a device


def escape_text(text: str) -> str:
    r"""Escape everything in `text` that could mislead a terminal, a parser or a reader.

    >>> escape_text("cuda:0\x1b[2J\n")
    'cuda:0\\x1b[2J\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def format_number(value: float) -> str:
    """Four significant digits, three below a tenth, and an exponent only if needed.

    >>> [format_number(v) for v in (4533.62, 789.04, 55.3, 0.012345, -3.0, 1.25e-7, 3e15)]
    ['4534', '789', '55.3', '0.0123', '-3', '1.25e-07', '3e+15']
    """
    if 1000 <= abs(value) < 1e9:
        return f"{value:.0f}"
    return f"{value:.4g}" if abs(value) >= 0.1 else f"{value:.3g}"


def format_roughly(value: float) -> str:
    """Three digits, for the end of a scale.

    >>> [format_roughly(v) for v in (4876.2, 59.52, 0.00053, -1.0)]
    ['4876', '59.5', '0.00053', '-1']
    """
    return format_number(value) if abs(value) >= 100 else f"{value:.3g}"


def format_margin(margin: float) -> str:
    """A margin in percent, with its sign.

    >>> [format_margin(m) for m in (0.12, -0.0321, 0.0, -0.00004)]
    ['+12 %', '−3.2 %', '+0 %', '−0.004 %']
    """
    percent = abs(margin) * 100
    return (
        f"{'−' if margin < 0 else '+'}{percent:.2g} %"
        if percent < 99.5
        else f"{'−' if margin < 0 else '+'}{percent:.0f} %"
    )


def format_limits(bound: Expectation, unit: str) -> str:
    """A bound as a sign and a number.

    >>> format_limits(Expectation(source=Source.SKU, words="", at_least=48.0, at_most=66.5), "GB/s")
    '≥ 48 and ≤ 66.5 GB/s'
    """
    said = [f"{sign} {format_number(v)}" for sign, v in (("≥", bound.at_least), ("≤", bound.at_most)) if v is not None]
    return f"{' and '.join(said)} {unit}".rstrip() if said else "no bound"


def list_missed_bounds(figure: Figure) -> tuple[Expectation, ...]:
    """The expectations that a figure does not meet."""
    return tuple(
        each
        for each in figure.expected
        if (each.at_least is not None and not figure.value >= each.at_least)
        or (each.at_most is not None and not figure.value <= each.at_most)
    )


def format_location(location: Location) -> str:
    """The location of a fault, from the large to the small.

    >>> format_location(Location(gpu="GPU-1", sm=7, address="0x3000268"))
    'GPU-1, SM 7, address 0x3000268'
    """
    parts = (
        location.gpu,
        f"SM {location.sm}" if location.sm is not None else "",
        f"address {location.address}" if location.address else "",
        f"page {location.page}" if location.page[:1].isdigit() else location.page,
        f"link {location.link}" if location.link is not None else "",
        f"to {location.peer}" if location.peer else "",
        f"NIC {location.nic}" if location.nic else "",
        location.path,
    )
    return ", ".join(part for part in parts if part)
