"""What befalls the machines of a run, at its time, and what becomes of it: strikes, second acts, boots. Writes down all it does.

`strikes.jsonl` is the truth that the judge goes by: what was done to which node and when, and what ended it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from bench.day import assumptions
from bench.day.cluster import Cluster
from bench.day.device import STRENGTH, State
from bench.day.faults import Fault


class World:
    """The faults of a plan, and the boots of machines. `tick` is called again and again."""

    def __init__(self, cluster: Cluster, plan: list[Fault]) -> None:
        self._cluster = cluster
        self._waiting = list(plan)
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._bad: dict[str, float] = {}  # since when a node would stop the next job, UTC s

    @property
    def bad(self) -> dict[str, float]:
        """Nodes on which a job cannot start, and since when (UTC s)."""
        return self._bad

    def tick(self, since_begin: float) -> None:
        """Do what is due, `since_begin` seconds after training began."""
        while self._waiting and self._waiting[0].at <= since_begin:
            self._strike(self._waiting.pop(0))
        now = time.monotonic()
        due = [act for at, act in self._later if at <= now]
        self._later = [(at, act) for at, act in self._later if at > now]
        for act in due:
            act()
        for node, device in self._cluster.devices.items():
            if (device.place / "reboot").exists():
                (device.place / "reboot").unlink()
                self.reboot(node)
            if not device.read().stays and self._bad.pop(node, None) is not None:
                self.note("well", node)

    def note(self, event: str, node: str, **facts: object) -> None:
        """Write down what happened to a node."""
        with (self._cluster.place / "strikes.jsonl").open("a") as log:
            log.write(json.dumps({"at": time.time(), "event": event, "node": node, **facts}) + "\n")

    def reboot(self, node: str, cure: str = "reboot") -> None:
        """It is off for as long as a machine starts, then under another boot, and cured of what that `cure` helps against."""
        self.note("off", node)
        self._cluster.power_off(node)
        self._after(assumptions.REBOOT.here, lambda: self._up(node, cure))

    def _up(self, node: str, cure: str) -> None:
        self._cluster.devices[node].cured(cure)
        self._cluster.power_on(node)
        self.note("on", node)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + seconds, act))

    def _strike(self, fault: Fault) -> None:
        kind, node = fault.kind, fault.node
        device = self._cluster.devices[node]
        job, nodes = self._job_on(node)
        self.note("strike", node, number=fault.number, kind=kind.name, gpu=fault.gpu, job=job)
        gpu = {"gpu": str(fault.gpu), "pci": self._pci(node, fault.gpu)}
        device.driver(tuple(line.format(**gpu) for line in kind.driver))
        if kind.port_down:
            device.port_down()
        for each in nodes if kind.whole_job else [node]:
            pci = self._pci(each, fault.gpu)
            for line in kind.lines:
                self._cluster.devices[each].say(line.format(gpu=fault.gpu, pci=pci))
        if kind.acts == "down":
            self.reboot(node)
        elif kind.after_s:
            state = device.read()
            mark = state.event + 1
            device.write(State(mark, "", state.stays, state.slow, max(kind.cure, state.cure, key=STRENGTH.index)))
            self._after(kind.after_s, lambda: self._second_act(fault, mark))
        elif kind.acts:
            for each in nodes if kind.whole_job and nodes else [node]:
                self._act(fault, each)

    def _second_act(self, fault: Fault, mark: int) -> None:
        """Unless it was cured in time."""
        state = self._cluster.devices[fault.node].read()
        if state.event == mark and not state.cure:
            self.note("averted", fault.node, number=fault.number)
        else:
            self._act(fault, fault.node)

    def _act(self, fault: Fault, node: str) -> None:
        kind, device = fault.kind, self._cluster.devices[node]
        before = device.read()
        slow = kind.acts == "slow"
        state = State(
            event=before.event + 1,
            acts="" if slow else kind.acts,
            stays=kind.acts if kind.stays and not slow else before.stays,
            slow=max(kind.slow, before.slow),
            cure=max(kind.cure if kind.stays else "", before.cure, key=STRENGTH.index),
        )
        device.write(state)
        self.note("acts", node, number=fault.number, acts=kind.acts)
        if state.stays:
            self._bad.setdefault(node, time.time())
        if slow and kind.lasts_s:
            self._after(kind.lasts_s, lambda: self._passes(node, state.event))

    def _passes(self, node: str, event: int) -> None:
        device = self._cluster.devices[node]
        now = device.read()
        if now.event == event:
            device.write(State(event, now.acts, now.stays, 1.0, now.cure))

    def _pci(self, node: str, gpu: int) -> str:
        return f"{self._cluster.nodes.index(node) + 1:04x}:{0x10 + gpu:02x}:00"

    def _job_on(self, node: str) -> tuple[str, list[str]]:
        """The job that has a rank there, and all of its nodes."""
        for line in self._cluster.slurm.command("squeue", "-h", "-t", "R", "-o", "%j|%N", check=False).splitlines():
            job, _, listed = line.partition("|")
            nodes = self._cluster.slurm.command("scontrol", "show", "hostnames", listed, check=False).split()
            if node in nodes:
                return job, nodes
        return "", []
