"""A CycloneDX bill of materials for node, controller and preflight: ``python -m tools.supply.bill_of_materials [FOLDER]`` (make sbom).

Generated from the lock files alone, so equal locks give equal bytes. SOURCE_DATE_EPOCH is its date, else 1970.
"""

from __future__ import annotations

import os
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from tools.supply.lock_files import SHIPPED, Licence, Package, read_licences, read_locked_packages
from vocabulary import VERSION

PLACE = Path(__file__).parents[2] / "build" / "sbom"
_NAMES = uuid.uuid5(uuid.NAMESPACE_URL, "urn:gpu-healthd:sbom")


def build_bill_of_materials(lock: str) -> str:
    """The bill of one lock file, as JSON.

    Raises:
        LockError: the lock or the table of licences is wrong.
        KeyError: a package has no licence in the table.
    """
    known = read_licences()
    found = read_locked_packages(lock)
    made = Bom(components=[_component(package, known[package.name]) for package in found])
    made.serial_number = uuid.uuid5(_NAMES, f"{lock} {VERSION} {found} {known}")
    made.metadata.timestamp = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), timezone.utc)
    made.metadata.component = Component(
        type=ComponentType.APPLICATION,
        name=f"gpu-healthd-{lock}",
        version=VERSION,
        bom_ref=f"gpu-healthd-{lock}",
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
    )
    made.register_dependency(made.metadata.component, made.components)
    return str(JsonV1Dot6(made).output_as_string(indent=2))


def _component(package: Package, licence: Licence) -> Component:
    url = PackageURL("pypi", None, package.name, package.version)
    told = [Property(name="gpu-healthd:sha256", value=digest) for digest in package.digests]
    if package.marker:
        told.append(Property(name="gpu-healthd:only-where", value=package.marker))
    return Component(
        type=ComponentType.LIBRARY,
        name=package.name,
        version=package.version,
        purl=url,
        bom_ref=str(url),
        licenses=[LicenseFactory().make_from_string(licence.expression)],
        properties=told,
    )


def main() -> None:
    """Write all bills."""
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else PLACE
    place.mkdir(parents=True, exist_ok=True)
    for lock in SHIPPED:
        path = place / f"{lock}.cdx.json"
        path.write_text(build_bill_of_materials(lock) + "\n")
        print(f"written: {path}")  # noqa: T201 - what a person who calls it wants to know


if __name__ == "__main__":
    main()
