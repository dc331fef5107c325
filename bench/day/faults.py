"""What breaks in a day, how often, how it shows and what it does to a GPU. Pure: the same seed, the same day.

Llama 3 counted 419 interruptions in 54 days on 16 384 GPUs. What is not counted there (numbers that mean nothing, programs' mistakes
in other jobs, slow nodes) has rates of ours. Silent data corruption (6 of 419) is left out: nothing here could see it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from bench.day.assumptions import MINUTES_OF_A_DAY, NOTICE, PASSING, REBOOT

LLAMA_DAYS = 54.0
GPUS, GPUS_THERE = 8, 16384
LATEST = 0.9  # of the run: what strikes later could not be judged
LEMON_SHARE, LEMON_TIMES = 0.012, 20.0  # Meta; multipliers of 5 to 220 are reported
LINE_END = "pid='<unknown>', name=<unknown>"


class Kind(msgspec.Struct, frozen=True):
    """One kind of fault.

    `per_day`: how often on 16 384 GPUs. `lines`: what the kernel says; `{pci}` is the GPU's address. `acts`: what becomes of the
    rank that computes there: goes on, hangs, crashes, is slow (and how much), or its machine goes down. `after_s`: how long that takes.
    `stays`: it is so for every rank that starts there, until it is cured by a reset, a reboot or a repair. `eject`: whether taking
    the node out is right. `whole_job`: the lines come on every node of the job there. `unheld`: why its
    node may stay.
    """

    name: str
    per_day: float
    acts: str
    lines: tuple[str, ...] = ()
    cure: str = ""
    stays: bool = True
    eject: bool = True
    after_s: float = 0.0
    lasts_s: float = 0.0
    slow: float = 1.0
    driver: tuple[str, ...] = ()
    port_down: bool = False
    whole_job: bool = False
    unheld: str = ""


def _xid(code: int, text: str) -> str:
    return f"NVRM: Xid (PCI:{{pci}}): {code}, {LINE_END}, {text}"


def _counted(times: float) -> float:
    return times / LLAMA_DAYS


KINDS = (
    Kind("GPU lost", _counted(60), "hang", (_xid(79, "GPU has fallen off the bus."),), "repair", driver=("lost {gpu}",)),
    Kind("GSP stopped", _counted(77), "hang", (_xid(119, "Timeout after 45s of waiting for RPC response from GPU{gpu} GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4)."),), "reset"),
    Kind("NVLink fails", _counted(28), "crash", (_xid(74, "NVLink: fatal error detected on link 11(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),), "reset", after_s=NOTICE.here),
    Kind("memory error, not contained", _counted(36), "crash", (_xid(95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"),), "reset"),
    Kind("memory error, contained", _counted(36), "crash", (_xid(94, "Contained: SM (0x1). RST: No, D-RST: No"),), "reset", stays=False, driver=("pending.{gpu} 1",)),
    Kind("SRAM error", _counted(19), "crash", (_xid(48, "DBE (Double Bit Error) ECC Error"),), "reset"),
    Kind("network port down", _counted(35), "hang", ("mlx5_core 0000:1a:00.0: Port module event: module 0, Cable unplugged",), "repair", port_down=True),
    Kind("network adapter fails", _counted(7), "hang", ("mlx5_core 0000:1a:00.0: poll_health:800:(pid 0): Fatal error 1 detected",), "repair", port_down=True),
    Kind("machine goes down", _counted(32), "down", stays=False, lasts_s=REBOOT.here),
    Kind("host memory, board, processor", _counted(14), "crash", ("EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#1 (channel:0 slot:1 page:0x2f01a4 offset:0xd40 grain:32)",), "repair"),
    Kind("hangs once, nothing is said", _counted(7), "hang", stays=False, eject=False),
    Kind("GPU slow by heat", _counted(6) + 0.5, "slow", cure="repair", slow=1.3, driver=("throttle.{gpu} 0x48", "sm_clock.{gpu} 1200", "temperature.{gpu} 90"), unheld="a suspect within minutes; at 30 % ejecting pays after half an hour"),
    Kind("program's mistake on all ranks", _counted(54), "crash", (_xid(31, "Ch 00000013, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC0 GPCCLIENT_T1_0 faulted @ 0x7f2a_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"),), stays=False, eject=False, whole_job=True),
    Kind("program's mistake on one rank", 2.0, "crash", (_xid(13, "Graphics Exception: ESR 0x51df30=0xc0b 0x51df34=0x4 0x51df28=0x4c1eb72 0x51df2c=0x174"), _xid(43, "Ch 00000008")), stays=False, eject=False),
    Kind("worn row remapped", 2.0, "", (_xid(63, "Row Remapper: New row (0x0000000001a6f3) marked for remapping, reset gpu to activate."),), eject=False, stays=False),
    Kind("channel cleaned up", 2.0, "", (_xid(45, "Ch 00000010"),), eject=False, stays=False),
    Kind("link corrected itself", 2.0, "", ("pcieport 0000:15:00.0: AER: Corrected error received: 0000:16:00.0",), eject=False, stays=False),
    Kind("slow for a while", 2.0, "slow", eject=False, stays=False, lasts_s=PASSING.here, slow=1.5),
)  # fmt: skip
LEMON = Kind(
    "lemon crashes a job, nothing is said",
    0.0,
    "crash",
    stays=False,
    unheld="no trace but the end of a process, as a program's mistake leaves it; a lemon shows over weeks",
)
BY_NAME = {kind.name: kind for kind in (*KINDS, LEMON)}


class Fault(msgspec.Struct, frozen=True):
    """One fault of the day: `at` seconds after training began, on one GPU of one node."""

    number: int
    at: float
    node: str
    gpu: int
    name: str

    @property
    def kind(self) -> Kind:
        """Which kind it is."""
        return BY_NAME[self.name]


def draw_faults(seed: int, minutes: float, nodes: Sequence[str]) -> list[Fault]:
    """A day's faults (of `minutes` / 10 days) on these nodes, in order of time.

    Each kind comes by chance at its rate, at any time and on any node; the first tenth of the time stays free of faults.
    """
    chance = random.Random(f"{seed} {minutes:g} {len(nodes)}")  # noqa: S311 - a plan that can be drawn again, no secret
    days, seconds = minutes / MINUTES_OF_A_DAY, minutes * 60
    per_node = 419 / LLAMA_DAYS / (GPUS_THERE / GPUS)
    density = GPUS_THERE / GPUS / len(nodes)  # as many faults a node more as the cluster is smaller
    hits = [
        (_when(chance, seconds), chance.choice(nodes), kind.name)
        for kind in KINDS
        for _ in range(_poisson(chance, kind.per_day * days))
    ]
    hits += [
        (_when(chance, seconds), lemon, LEMON.name)
        for lemon in [node for node in nodes if chance.random() < LEMON_SHARE]
        for _ in range(_poisson(chance, per_node * LEMON_TIMES * density * days))
    ]
    return [
        Fault(number, round(at, 1), node, chance.randrange(GPUS), name)
        for number, (at, node, name) in enumerate(sorted(hits), 1)
    ]


def schedule_each_fault(minutes: float, nodes: Sequence[str]) -> list[Fault]:
    """Each kind once, at even distances, on one node after the other: no day, but a look at all that can happen."""
    between = minutes * 60 * (2 * LATEST - 1) / len(KINDS)
    return [
        Fault(
            number, round(minutes * 60 * (1 - LATEST) + between * number, 1), nodes[number % len(nodes)], 3, kind.name
        )
        for number, kind in enumerate(KINDS, 1)
    ]


def _when(chance: random.Random, seconds: float) -> float:
    return seconds * chance.uniform(1 - LATEST, LATEST)


def _poisson(chance: random.Random, mean: float) -> int:
    """How many came, of which `mean` come on average (exponential gaps)."""
    count, passed = 0, chance.expovariate(1.0)
    while passed < mean:
        count, passed = count + 1, passed + chance.expovariate(1.0)
    return count
