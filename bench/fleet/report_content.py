"""What a node of a training job says in a report: eight GPUs, eight ranks, the windows of their newest steps."""

from __future__ import annotations

import random
import time

from msgspec.structs import replace

from bench.fleet.faults import gpu_uuid
from bench.fleet.options import INTERVAL_S
from vocabulary.finding import Finding
from vocabulary.health import Health
from vocabulary.messages.heartbeat import build_heartbeat, encode_heartbeat
from vocabulary.messages.wire import (
    FindingChange,
    Gpu,
    RankStatus,
    Report,
    StepWindow,
    Versions,
    decode_report,
    encode_message,
)

GPUS = 8
NODES_PER_JOB = 64
STEP_S = 1.2
WINDOW = 4  # steps; a window takes at least some seconds
WINDOWS_TOLD = 8
WINDOWS_NEW = 2  # since the last report, at the usual interval
NOISE = 0.005  # of a rank's own compute, as a share of it: sequences of one length
SHARES = {"forward_s": 0.3, "backward_s": 0.5, "communication_s": 0.15, "data_s": 0.01}
SECTIONS = {name.removesuffix("_s"): round(share * STEP_S, 6) for name, share in SHARES.items()}
VERSIONS = Versions(healthd="0.1", driver="570.124.06", kernel="6.8.0-60-generic", image="Ubuntu 24.04.2 LTS")


class Words:
    """Of one node."""

    def __init__(self, number: int, node: str, agent: str, began_at: float) -> None:
        """Args: `began_at`: when its job began to train, UTC s."""
        self._node = node
        self._agent = agent
        self._began_at = began_at
        self._pace = random.Random(number).gauss(1.0, NOISE)  # noqa: S311 - no secret
        self._first_rank = number % NODES_PER_JOB * GPUS
        self._job = f"job-{number // NODES_PER_JOB}"
        self._gpus = tuple(
            Gpu(g, gpu_uuid(node, g), f"0000:{g:02x}:00.0", "NVIDIA H100 80GB HBM3", f"16{number:06}{g}")
            for g in range(GPUS)
        )
        self._boot_id = f"5f0c9f43-0000-4000-8000-{number:012}"
        self._told: tuple[int, tuple[StepWindow, ...]] = (-1, ())

    def report(self, seq: int, changes: tuple[FindingChange, ...], active: tuple[Finding, ...]) -> bytes:
        """The body of its report number `seq`, now."""
        now = time.time()
        step = int((now - self._began_at) / STEP_S)
        return self._encode(seq, now, self._ranks(now, step, self._windows(step // WINDOW)), changes, active)

    def report_at(self, seq: int, now: float, step: int, first_window: int) -> bytes:
        """The body of a report with these numbers, for a generator that replaces them: windows begin at `first_window` + n."""
        windows = tuple(
            StepWindow(first_window + n, WINDOW, WINDOW, STEP_S, **self._own_sections()) for n in range(WINDOWS_TOLD)
        )
        return self._encode(seq, now, self._ranks(now, step, windows), (), ())

    def heartbeat_at(self, base: int, seq: int, now: float, step: int, first_number: int) -> bytes:
        """A heartbeat with these numbers, for a generator that replaces them: windows have the numbers from `first_number` on."""
        windows = tuple(
            StepWindow((first_number + n) * WINDOW, WINDOW, WINDOW, STEP_S, **self._own_sections())
            for n in range(WINDOWS_NEW)
        )
        whole = decode_report(self._encode(base, now, self._ranks(now, step, ()), (), ()))
        report = replace(whole, seq=seq, ranks=tuple([replace(rank, windows=windows) for rank in whole.ranks]))
        built = build_heartbeat(whole, report, {})
        packed = None if built is None else encode_heartbeat(built)
        if packed is None:
            raise ValueError(f"no heartbeat with these numbers: {base}, {seq}, {now}, {step}, {first_number}")
        return packed

    def _encode(
        self,
        seq: int,
        now: float,
        ranks: tuple[RankStatus, ...],
        changes: tuple[FindingChange, ...],
        active: tuple[Finding, ...],
    ) -> bytes:
        return encode_message(
            Report(
                version=1,
                node=self._node,
                boot_id=self._boot_id,
                agent=self._agent,
                seq=seq,
                sent_at=now,
                ttl_s=3 * INTERVAL_S,
                health=Health.DEGRADED if active else Health.HEALTHY,
                changes=changes,
                active=active,
                gpus=self._gpus,
                ranks=ranks,
                versions=VERSIONS,
            )
        )

    def _ranks(self, now: float, step: int, windows: tuple[StepWindow, ...]) -> tuple[RankStatus, ...]:
        return tuple(
            RankStatus(
                job=self._job,
                attempt=0,
                rank=self._first_rank + g,
                world=NODES_PER_JOB * GPUS,
                pid=1000 + g,
                step=step,
                phase="step",
                at=now,
                step_seconds=STEP_S,
                section="backward",
                step_median=STEP_S,
                sections=SECTIONS,
                sections_median=SECTIONS,
                pipeline_stage=0,
                tensor_group=self._first_rank // GPUS,
                data_group=g,
                gpu=self._gpus[g].uuid,
                windows=windows,
            )
            for g in range(GPUS)
        )

    def _windows(self, over: int) -> tuple[StepWindow, ...]:
        """The newest of so many that are over; the same for its eight ranks: the generator must not be what is measured."""
        if self._told[0] != over:
            own = self._own_sections()
            numbers = range(max(0, over - WINDOWS_TOLD), over)
            self._told = over, tuple(StepWindow(n * WINDOW, WINDOW, WINDOW, STEP_S, **own) for n in numbers)
        return self._told[1]

    def _own_sections(self) -> dict[str, float]:
        return {name: round(share * STEP_S * self._pace, 6) for name, share in SHARES.items()}
