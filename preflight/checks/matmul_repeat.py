"""Arithmetic: seeded matrix products in every supported type must repeatedly give the same, correct bits.

Every output is digested on the device and compared with the first of its kind; every operand is verified; per work, one
output with that digest is verified (`preflight.kernels.product_verification`). The comparison with other devices
follows in `preflight.device_comparison.majority_vote`, after all devices have finished.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from preflight.check_context import Context, Device
from preflight.checks.digest_evidence import build_digest_evidence
from preflight.checks.matmul_schedule import ProductItem, list_available_kinds, schedule_products
from preflight.host.significant_digits import round_to_four_digits
from preflight.kernels.arithmetic_faults import OPERAND, build_output_fault, corrupt_operand
from preflight.kernels.matmul_products import MatmulWork, RepeatResult, is_refusal, repeat_product
from preflight.kernels.output_elements import format_bit_counts
from preflight.kernels.product_verification import (
    LimitUse,
    Objection,
    collect_objections,
    find_faulty_multiprocessors,
)
from preflight.kernels.tensor_digests import compute_digest
from preflight.results import Evidence, Figure, Location, Outcome, Result

TEST = "matmul_repeat"
HOST_REPEATS, GPU_REPEATS = 4, 10
LISTED = 8
ROUNDING = "rounding_used"  # in the evidence: the largest error of a right product, as a share of each judge's limit
_UNAVAILABLE = (RuntimeError, NotImplementedError, ValueError)


class WorkFinding(NamedTuple):
    """Errors in one work. `sms` are the multiprocessors known to have computed wrong results.

    `refused`: its bits repeat, but fail verification.
    """

    item: ProductItem
    what: str
    evidence: Evidence
    sms: list[int]
    refused: bool = False


class WorkHistory:
    """All observations of one device so far."""

    def __init__(self, context: Context, device: Device) -> None:
        self._context, self._device = context, device
        self.kinds, self.lacks = list_available_kinds(device, context.level)
        self.digests: dict[str, str] = {}
        self.rates: dict[str, list[float]] = {}
        self.outputs = 0
        self.limit_use: dict[str, LimitUse] = {}
        self.findings: list[WorkFinding] = []

    def visit(self, item: ProductItem) -> None:
        """Compute one product several times and verify it."""
        if item.kind.name in self.lacks:
            return
        device = self._device.torch_name
        self._context.note(f"{self._device.name}: {item}")
        try:
            work = MatmulWork(item.kind, item.size, item.seed, device)
        except _UNAVAILABLE as error:
            refused = is_refusal(error) and item.setting not in self.rates  # what it could before, it does not lack
            if type(error) is RuntimeError and not refused:
                raise RuntimeError(f"{item}: {error}") from error
            if not refused:
                raise  # the exception's class shows which: out of memory, or a faulty device
            self._lack(item, error)
            return
        except TypeError as error:
            if not item.kind.by_scaled_mm:
                raise
            self._lack(item, error)
            return
        fault = build_output_fault(self._context.fault, work.run)
        if self._context.fault == OPERAND:
            corrupt_operand(work.left)
        seen = repeat_product(work, HOST_REPEATS if self._device.on_host else GPU_REPEATS, fault)
        self.outputs += seen.repeats
        self.rates.setdefault(item.setting, []).append(2 * item.size**3 * seen.repeats / seen.seconds / 1e12)
        first_time = str(item) not in self.digests
        known = self.digests.setdefault(str(item), seen.digest)
        found = _find_changed_operand(item, work) or _find_differing_repeats(item, seen, known)
        if not found and first_time:
            self._context.note(f"{self._device.name}: {item}, verifying")
            use = self.limit_use.setdefault(item.setting, LimitUse())
            found = _find_changed_output(item, seen) or _find_objection(
                item, seen.output, collect_objections(work, seen.output, use)
            )
        if found:
            self.findings.append(found._replace(sms=sorted({*found.sms, *self._hunted(work, found)})))

    def _lack(self, item: ProductItem, error: Exception) -> None:
        self.lacks[item.kind.name] = " ".join(str(error).split())[:200]

    def _hunted(self, work: MatmulWork, found: WorkFinding) -> list[int]:
        self._context.note(f"{self._device.name}: {found.item}, locating the multiprocessor")
        faulty = find_faulty_multiprocessors(work)
        if faulty:
            found.evidence["multiprocessors"] = ", ".join(
                f"SM {sm}: {wrong} of {computed} tiles wrong" for sm, (wrong, computed) in faulty.items()
            )
        return list(faulty)


def check_matmul_repeat(context: Context) -> Iterator[Result]:
    """One result. Each type runs at least once; further seeds follow until the time is up, or an error occurs."""
    device = context.device
    if device is None:
        return
    began = time.monotonic()
    seen = WorkHistory(context, device)
    for number, item in enumerate(schedule_products(seen.kinds, device, context.level)):
        tried = number >= len(seen.kinds)
        if tried and (seen.findings or time.monotonic() - began > context.seconds):
            break
        seen.visit(item)
    yield _build_result(device, seen)


def _build_result(device: Device, seen: WorkHistory) -> Result:
    only_judged = all(found.refused for found in seen.findings)
    objected = [str(found.item) for found in seen.findings if only_judged]
    refuses = {kind.name: seen.lacks[kind.name] for kind in seen.kinds if kind.name in seen.lacks}
    evidence, remarks = build_digest_evidence(device, seen.digests, objected, refuses)
    remarks += tuple(
        f"the library refuses {kind}, which this device should support: {why}" for kind, why in refuses.items()
    )
    evidence |= {"label": device.label, "outputs": seen.outputs}
    shares = [f"{on} {by}: {share:.3g}" for on, use in seen.limit_use.items() for by, share in use.shares.items()]
    evidence |= {ROUNDING: ", ".join(shares)} if shares else {}
    if seen.lacks:
        evidence["lacks"] = "; ".join(f"{kind} ({why})" for kind, why in seen.lacks.items())
    figures = tuple(
        Figure(name="product_rate", value=_compute_median_rate(rates), unit="TFLOP/s", setting=setting)
        for setting, rates in seen.rates.items()
    )
    result = Result(
        test=TEST, outcome=Outcome.PASS, device=device.name, figures=figures, remarks=remarks, evidence=evidence
    )
    if not seen.digests:
        reason = f"no matmul could be computed: {evidence.get('lacks', 'torch supports no type here')}"
        return Result(test=TEST, outcome=Outcome.ERROR, device=device.name, reason=reason)
    return _build_failed_result(result, device, seen.findings, by_limit=only_judged) if seen.findings else result


def _build_failed_result(result: Result, device: Device, findings: list[WorkFinding], *, by_limit: bool) -> Result:
    """The result with full details of the first error, and names of the others."""
    first = findings[0]
    also = dict.fromkeys(found.item.kind.name for found in findings if found.item.kind != first.item.kind)
    reason = f"{first.item}: {first.what}" + (f"; also {', '.join(also)}" if also else "")
    evidence = result.evidence | first.evidence
    evidence |= {
        "type": first.item.kind.name,
        "size": first.item.size,
        "seed": first.item.seed,
        "wrong_works": len(findings),
    }
    gpu = device.uuid or device.name
    sms = sorted({sm for found in findings for sm in found.sms})
    locations = tuple(Location(gpu=gpu, sm=sm) for sm in sms) or (Location(gpu=gpu),)
    return Result(
        test=TEST,
        outcome=Outcome.FAIL,
        device=device.name,
        reason=reason,
        figures=result.figures,
        remarks=result.remarks,
        evidence=evidence,
        locations=locations,
        by_limit=by_limit,
    )


def _compute_median_rate(rates: list[float]) -> float:
    """The median rate in TFLOP/s, without the warm-up if there are more runs."""
    return round_to_four_digits(statistics.median(rates[1:] or rates))


def _find_changed_operand(item: ProductItem, work: MatmulWork) -> WorkFinding | None:
    for name, errors in work.operand_errors().items():
        evidence: Evidence = {
            "operand": name,
            "wrong_words": errors.wrong,
            "bits": format_bit_counts(each.expected ^ each.actual for each in errors.listed),
            "errors": "; ".join(map(str, errors.listed[:LISTED])),
        }
        what = f"the {name} operand changed in memory; {errors.sentence}"
        return WorkFinding(item, what, evidence, [])
    return None


def _find_differing_repeats(item: ProductItem, seen: RepeatResult, known: str) -> WorkFinding | None:
    if seen.differing:
        evidence: Evidence = {
            "repeat": seen.differing[0],
            "differing_repeats": len(seen.differing),
            "wrong_elements": len(seen.wrong),
            "bits": format_bit_counts(each.flipped for each in seen.wrong),
            "tiles": ", ".join(
                f"[{row}, {column}]" for row, column in sorted({each.tile for each in seen.wrong})[:LISTED]
            ),
            "errors": "; ".join(seen.places),
        }
        what = f"repeats {seen.differing[:LISTED]} of {seen.repeats} differ from repeat 0, first {seen.places[0]}"
        return WorkFinding(item, what, evidence, [])
    if seen.digest != known:
        what = f"digest {seen.digest}, but {known} before from the same operands"
        return WorkFinding(item, what, {"digest_before": known, "digest_now": seen.digest}, [])
    return None


def _find_changed_output(item: ProductItem, seen: RepeatResult) -> WorkFinding | None:
    """Check that the verified output is the digested one: memory may have changed in between."""
    now = compute_digest(seen.output)
    if now == seen.digest:
        return None
    what = f"digest {now} of the output when verified, but {seen.digest} when computed"
    return WorkFinding(item, what, {"digest_before": seen.digest, "digest_now": now}, [])


def _find_objection(item: ProductItem, output: Any, said: list[Objection]) -> WorkFinding | None:
    if not said:
        return None
    first = said[-1] if said[0].by == "checksums" else said[0]  # checksums report rows and columns, the others elements
    evidence: Evidence = {
        "judges": ", ".join(each.by for each in said),
        "wrong_elements": first.elements,
        "rows": ", ".join(map(str, first.rows)),
        "columns": ", ".join(map(str, first.columns)),
        "errors": "; ".join(f"{each.by}: {each.words}" for each in said),
        "output": str(tuple(output.shape)),
    }
    what = f"wrong in every repeat; {first.by}: {first.elements} wrong, first {first.words}"
    return WorkFinding(item, what, evidence, sorted({sm for each in said for sm in each.sms}), refused=True)
