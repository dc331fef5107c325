"""What a test of arithmetic tells of the bits it computed, so that they can be compared: with other devices, and with goldens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from preflight.check_context import Device
from preflight.device_comparison.device_digests import ComputedDigests
from preflight.kernels import golden_digests
from preflight.kernels.digest_platform import describe_platform
from preflight.kernels.tensor_digests import explain_missing_triton
from preflight.results import Evidence


def build_digest_evidence(
    device: Device, digests: Mapping[str, str], objected: Iterable[str] = (), refused: Iterable[str] = ()
) -> tuple[Evidence, tuple[str, ...]]:
    """Evidence of the digests, by work, with the goldens on record for them; and remarks.

    `objected` are the works that repeat and are wrong by the device's own judges, if that is all that is wrong; `refused` the types that
    its library would not compute.
    """
    on = describe_platform(device.torch_name)
    known, trouble = golden_digests.load_all_goldens()
    of_these = {work: digest for work, digest in known.get(on, {}).items() if work in digests}
    computed = ComputedDigests(
        platform=on,
        votes=not device.uuid.startswith("MIG-"),
        digests=dict(digests),
        goldens=of_these,
        objected=tuple(objected),
        refused=tuple(refused),
    )
    remarks = [f"compared with no golden digests of this site: {trouble}"] if trouble else []
    if not device.on_host and (missing := explain_missing_triton(device.torch_name)):
        remarks.append(f"{missing}: torch made the digests, at some cost in rates, and our own product was not asked")
    return computed.evidence(), tuple(remarks)
