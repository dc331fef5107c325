"""Special functions (exponential, logarithm, sine and others) of random numbers: repeatable to the bit, and correct.

They run on separate units beside the multipliers. Every output is digested and compared with the first; the last one is
compared with double precision, and the inputs are verified. Inputs are near 1, or *wide*, of many magnitudes. The
comparison with other devices is in `preflight.device_comparison.majority_vote`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from preflight.check_context import Context, Device
from preflight.checks.digest_evidence import build_digest_evidence
from preflight.checks.matmul_schedule import SEEDS, SEEDS_OF_LEVEL
from preflight.kernels.arithmetic_faults import OPERAND, build_output_fault, corrupt_operand
from preflight.kernels.elementwise_functions import FUNCTIONS, FunctionResult, verify_function
from preflight.kernels.output_elements import format_bit_counts
from preflight.results import Evidence, Location, Outcome, Result

TEST = "special_functions"
HOST_SIZE, GPU_SIZE, GPU_SIZE_MIN = 256, 4096, 512
HOST_REPEATS, GPU_REPEATS = 4, 10
BYTES_PER_NUMBER = 96  # input, outputs, temporary digests, and all in double precision
LISTED = 8


def check_special_functions(context: Context) -> Iterator[Result]:
    """One result. Each function runs with both kinds of inputs; further seeds follow until the time is up, or an error occurs."""
    device = context.device
    if device is None:
        return
    began = time.monotonic()
    size = choose_input_size(device)
    digests: dict[str, str] = {}
    wrong: list[tuple[str, FunctionResult]] = []
    seeds = itertools.cycle(SEEDS[: SEEDS_OF_LEVEL.get(context.level, 1)])
    harm = corrupt_operand if context.fault == OPERAND else None
    works = ((seed, wide, name) for seed in seeds for wide in (False, True) for name in FUNCTIONS)
    for number, (seed, wide, name) in enumerate(works):
        if number >= 2 * len(FUNCTIONS) and (wrong or time.monotonic() - began > context.seconds):
            break
        work = f"{name}{' wide' if wide else ''} {size} seed {seed}"
        context.note(f"{device.name}: {work}")
        repeats = HOST_REPEATS if device.on_host else GPU_REPEATS
        answers = verify_function(
            name, size, repeats, seed, device.torch_name, build_output_fault(context.fault), wide=wide, harm=harm
        )
        known = digests.setdefault(work, answers.digest)
        if answers.numbers.wrong or answers.differing or answers.wrong or known != answers.digest:
            wrong.append((work, answers))
    yield _build_result(device, digests, wrong)


def choose_input_size(device: Device) -> int:
    """Rows and columns of the inputs, as large as memory allows."""
    if device.on_host:
        return HOST_SIZE
    size = GPU_SIZE
    while size > GPU_SIZE_MIN and BYTES_PER_NUMBER * size**2 > device.memory_bytes:
        size //= 2
    return size


def _build_result(device: Device, digests: dict[str, str], wrong: list[tuple[str, FunctionResult]]) -> Result:
    only_judged = all(answers.wrong and not answers.differing and not answers.numbers.wrong for _, answers in wrong)
    evidence, remarks = build_digest_evidence(device, digests, [work for work, _ in wrong if only_judged])
    evidence["label"] = device.label
    if not wrong:
        return Result(test=TEST, outcome=Outcome.PASS, device=device.name, remarks=remarks, evidence=evidence)
    work, answers = wrong[0]
    also = dict.fromkeys(other.name for _, other in wrong if other.name != answers.name)
    reason = f"{work}: {_describe_answers(work, answers, digests)}" + (f"; also {', '.join(also)}" if also else "")
    return Result(
        test=TEST,
        outcome=Outcome.FAIL,
        device=device.name,
        reason=reason,
        remarks=remarks,
        evidence=evidence | _build_evidence(answers) | {"wrong_works": len(wrong)},
        locations=(Location(gpu=device.uuid or device.name),),
        by_limit=only_judged,
    )


def _describe_answers(work: str, answers: FunctionResult, digests: dict[str, str]) -> str:
    if answers.numbers.wrong:
        return f"the input numbers changed in memory; {answers.numbers.sentence}"
    if answers.differing:
        first = str(answers.places[0]) if answers.places else "unknown: repeat 0 is the one that differs"
        return f"repeats {answers.differing[:LISTED]} differ from repeat 0, first {first}"
    if answers.wrong:
        return f"wrong in every repeat; double precision: {answers.wrong} wrong, first {answers.first}"
    return f"digest {answers.digest}, but {digests[work]} before from the same numbers"


def _build_evidence(answers: FunctionResult) -> Evidence:
    return {
        "function": answers.name,
        "differing_repeats": len(answers.differing),
        "wrong_elements": answers.wrong or len(answers.places),
        "bits": format_bit_counts(each.flipped for each in answers.places),
        "errors": "; ".join([*map(str, answers.places[:LISTED]), *([answers.first] if answers.first else [])]),
    }
