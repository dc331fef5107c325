"""Evidence of an arithmetic test: digests of the computed bits, for comparison with other devices and with golden digests."""

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
    """Build the evidence: digests by work, and their golden digests on record; and remarks.

    `objected` are works that repeat but fail the device's own verification, if nothing else is wrong; `refused` are types that
    the library does not support.
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
    remarks = [f"not compared with this site's golden digests: {trouble}"] if trouble else []
    if not device.on_host and (missing := explain_missing_triton(device.torch_name)):
        remarks.append(
            f"{missing}: torch computed the digests, which lowers the rates, and the Triton matmul was not used as a second opinion"
        )
    return computed.evidence(), tuple(remarks)
