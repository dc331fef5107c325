"""What a test of arithmetic tells of the bits it computed, so that they can be compared: with other devices, and with goldens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from preflight.across.digests import Computed
from preflight.checks.context import Device
from preflight.kernels import goldens
from preflight.kernels.digest import without_triton
from preflight.kernels.platforms import platform
from preflight.results import Evidence


def told(
    device: Device, digests: Mapping[str, str], objected: Iterable[str] = (), refused: Iterable[str] = ()
) -> tuple[Evidence, tuple[str, ...]]:
    """Evidence of the digests, by work, with the goldens on record for them; and remarks.

    `objected` are the works that repeat and are wrong by the device's own judges, if that is all that is wrong; `refused` the types that
    its library would not compute.
    """
    on = platform(device.torch_name)
    known, trouble = goldens.stored()
    of_these = {work: digest for work, digest in known.get(on, {}).items() if work in digests}
    computed = Computed(
        platform=on,
        votes=not device.uuid.startswith("MIG-"),
        digests=dict(digests),
        goldens=of_these,
        objected=tuple(objected),
        refused=tuple(refused),
    )
    remarks = [f"compared with no golden digests of this site: {trouble}"] if trouble else []
    if not device.on_host and (missing := without_triton(device.torch_name)):
        remarks.append(f"{missing}: torch made the digests, at some cost in rates, and our own product was not asked")
    return computed.evidence(), tuple(remarks)
