"""What a test of arithmetic tells of the bits it computed, so that they can be compared: with other devices, and with goldens."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.across.digests import Computed
from preflight.checks.context import Device
from preflight.kernels import goldens
from preflight.kernels.digest import without_triton
from preflight.kernels.platforms import platform
from preflight.results import Evidence


def told(device: Device, digests: Mapping[str, str]) -> tuple[Evidence, tuple[str, ...]]:
    """Evidence of the digests, by work, with the goldens on record for them; and remarks."""
    on = platform(device.torch_name)
    known, trouble = goldens.stored()
    of_these = {work: digest for work, digest in known.get(on, {}).items() if work in digests}
    computed = Computed(platform=on, votes=not device.uuid.startswith("MIG-"), digests=dict(digests), goldens=of_these)
    remarks = [f"compared with no golden digests of this site: {trouble}"] if trouble else []
    if not device.on_host and (missing := without_triton(device.torch_name)):
        remarks.append(f"{missing}: torch made the digests, at some cost in rates, and our own product was not asked")
    return computed.evidence(), tuple(remarks)
