"""Rounds measured numbers to four significant digits. Pure."""

from __future__ import annotations


def round_to_four_digits(value: float) -> float:
    """``0.000123456`` → 0.0001235; a rate above zero never becomes zero."""
    return float(f"{value:.4g}")
