"""The static product table: manufacturer's specifications and results reached by others. Pure; the rows are data.

A product without a row has no expectation from the table.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping

import msgspec

from preflight.expectations.bounds import SourceBound
from preflight.expectations.measurement_keys import BetterDirection, find_better_direction, format_value
from preflight.results import Expectation, Figure, Source


class ProductRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure of a product: the usual value, the worst acceptable one, and the source.

    `setting` is a pattern with ``*``. `peak` is the manufacturer's maximum, which no measurement exceeds; 0 if there is none.
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
    """One product with the names that the driver uses. The manufacturer's figures are for people and for `rows`.

    Rates are per direction, in GB/s; products in TFLOP/s without sparsity; power is the board's, in watts.
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
    rows: tuple[ProductRow, ...] = ()


class ProductTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All products. The first matching row counts, so a site's own rows come first."""

    version: int = 1
    products: tuple[Product, ...] = ()


def find_product(table: ProductTable, name: str) -> Product | None:
    """The product with the driver's `name`, compared without case; exact matches only."""
    wanted = name.strip().casefold()
    return next((p for p in table.products if wanted in {n.casefold() for n in p.names}), None)


def find_product_row(product: Product, test: str, figure: Figure) -> ProductRow | None:
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


def build_product_bound(product: Product, row: ProductRow) -> SourceBound | None:
    """The expectation of a row."""
    way = find_better_direction(row.unit)
    if way is BetterDirection.NEITHER:
        return None
    words = f"{product.product}, typically {format_value(row.usual)}: {row.source}"
    low, high = (row.worst, None) if way is BetterDirection.MORE else (None, row.worst)
    return SourceBound(
        expectation=Expectation(source=Source.SKU, at_least=low, at_most=high, words=words), usual=row.usual
    )


def list_table_faults(table: ProductTable) -> list[str]:
    """The errors of a table, each with its place; empty for a valid one."""
    owners: dict[str, str] = {}
    found = [
        f"{product.product}: the name {name!r} is also that of {owners[name.casefold()]}"
        for product in table.products
        for name in product.names
        if owners.setdefault(name.casefold(), product.product) != product.product
    ]
    for product in table.products:
        for row in product.rows:
            if why := _explain_row_fault(row):
                found.append(f"{product.product}: {row.test} {row.figure} ({row.setting}): {why}")  # noqa: PERF401 - four loops in one are no list
    return found


def _explain_row_fault(row: ProductRow) -> str:
    way = find_better_direction(row.unit)
    if way is BetterDirection.NEITHER:
        return f"unit {row.unit!r} has no direction: neither more nor less is better"
    if not (0 < row.usual < math.inf and 0 < row.worst < math.inf and 0 <= row.peak < math.inf):
        return "usual and worst must be numbers above zero, and a peak no less than zero"
    if (row.worst > row.usual) is (way is BetterDirection.MORE):
        return f"worst {row.worst:g} is better than usual {row.usual:g}"
    if row.peak and way is BetterDirection.MORE and row.usual > row.peak:
        return f"usual {row.usual:g} is above the peak of {row.peak:g}"
    return ""
