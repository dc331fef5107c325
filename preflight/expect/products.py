"""The static table: what the maker promises of a product, and what others have reached with it. Pure; the rows are data.

A product that is in no row has no expectation from here, and fails nothing.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping

import msgspec

from preflight.expect.bounds import Bound
from preflight.expect.figures import Better, better, said
from preflight.results import Expectation, Figure, Source


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure of a product: what it usually is, the worst that is still good, and who says so.

    `setting` is a pattern with ``*``. `peak` is the maker's promise, which nothing passes; 0 where there is none.
    """

    test: str
    figure: str
    setting: str = "*"
    unit: str
    usual: float
    worst: float
    peak: float = 0.0
    source: str


class Product(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One product under the names that the driver gives it. The maker's figures are for people and for `rows`.

    Rates are one way, in GB/s; products in TFLOP/s without sparsity; power is the board's, in watts.
    """

    product: str
    names: tuple[str, ...]
    memory: float
    nvlink: float = 0.0
    nvlinks: int = 0
    pcie: str = ""
    power: float
    peak: Mapping[str, float] = {}
    source: str
    rows: tuple[Row, ...] = ()


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All products. Where two rows fit, the first holds, so a site's own come first."""

    version: int = 1
    products: tuple[Product, ...] = ()


def product_of(table: Table, name: str) -> Product | None:
    """The product that the driver calls `name`, compared without case; never a product that only looks like it."""
    wanted = name.strip().casefold()
    return next((p for p in table.products if wanted in {n.casefold() for n in p.names}), None)


def row_of(product: Product, test: str, figure: Figure) -> Row | None:
    """The first row for this figure at its setting, in its unit."""
    return next(
        (
            row
            for row in product.rows
            if (row.test, row.figure, row.unit) == (test, figure.name, figure.unit)
            and fnmatch.fnmatchcase(figure.setting, row.setting)
        ),
        None,
    )


def bound(product: Product, row: Row) -> Bound | None:
    """The expectation of a row."""
    way = better(row.unit)
    if way is Better.NEITHER:
        return None
    words = f"{product.product}, usually {said(row.usual)}: {row.source}"
    low, high = (row.worst, None) if way is Better.MORE else (None, row.worst)
    return Bound(expectation=Expectation(source=Source.SKU, at_least=low, at_most=high, words=words), usual=row.usual)


def faults(table: Table) -> list[str]:
    """What is wrong with a table, each with its place; empty for one that can be used."""
    owners: dict[str, str] = {}
    found = [
        f"{product.product}: the name {name!r} is also that of {owners[name.casefold()]}"
        for product in table.products
        for name in product.names
        if owners.setdefault(name.casefold(), product.product) != product.product
    ]
    for product in table.products:
        for row in product.rows:
            if why := _fault(row):
                found.append(f"{product.product}: {row.test} {row.figure} ({row.setting}): {why}")  # noqa: PERF401 - four loops in one are no list
    return found


def _fault(row: Row) -> str:
    way = better(row.unit)
    if way is Better.NEITHER:
        return f"unit {row.unit!r} is not one in which more or less is better"
    if not (0 < row.usual < math.inf and 0 < row.worst < math.inf and 0 <= row.peak < math.inf):
        return "usual and worst must be numbers above zero, and a peak no less than zero"
    if (row.worst > row.usual) is (way is Better.MORE):
        return f"worst {row.worst:g} is better than usual {row.usual:g}"
    if row.peak and way is Better.MORE and row.usual > row.peak:
        return f"usual {row.usual:g} is above the peak of {row.peak:g}"
    return ""
