"""Formats a rank's beacon for people and for programs."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import msgspec

from healthctl.rendering.blocks import Block, Column, Facts, Rows, format_timestamp
from healthd.telemetry.step_summaries import convert_step
from healthd.trainer.beacons.beacon_page import Acknowledgement, Identity, MailboxOrder
from healthd.trainer.beacons.page_reader import BeaconView
from healthd.trainer.beacons.step_ring import SECTION_NAMES, StepRecord

_LIST = ("JOB", "RANK", "ATTEMPT", "PID", "ALIVE", "STEP", "DOING", "FOR", "LAST STEP", "LOSS", "ORDER")
_GROUPS = ("pipeline_stage", "tensor_group", "data_group", "expert_group")


def render_beacon_list(views: list[BeaconView], now: float, empty: str) -> Block:
    """One line per rank, or `empty`. `now`: UTC seconds."""
    return _build_text_table(_LIST, [_beacon_row(view, now) for view in views], empty)


def render_beacon_page(view: BeaconView, steps: int, now: float) -> list[Block]:
    """One rank in detail, with its last `steps` steps. `now`: UTC seconds."""
    who, state = view.identity, view.state
    dead = "" if view.alive else f", dead, last update {format_timestamp(state.at)}"
    head = [
        ("job", f"{who.job}, attempt {who.attempt}"),
        ("rank", f"{who.rank} of {who.world}, local {who.local_rank}, on {who.node}"),
        ("among its peers", ", ".join(_list_parallel_ranks(who))),
        ("GPU", " ".join(_list_gpu_names(who))),
        ("process", f"{who.pid} of user {view.uid}{dead}"),
        ("page", view.path),
        (
            "doing",
            f"{_format_phase(view)} for {_format_phase_age(view, now)}, step {state.step}, {state.completed} completed",
        ),
        ("mailbox", "" if view.order is None else _format_order(view.order)),
        ("answer", "" if view.acknowledgement is None else _format_acknowledgement(view.acknowledgement)),
    ]
    last = view.steps(steps) if steps else []
    return [Facts(head), *([_render_steps(last)] if last else [])]


def beacon_to_json(view: BeaconView, steps: int) -> dict[str, Any]:
    """The same as JSON; times are UTC seconds."""
    last = view.steps(steps) if steps else []
    return {
        "path": replace_surrogates(view.path),
        "alive": view.alive,
        "uid": view.uid,
        "identity": view.identity._asdict(),
        "state": {
            "step": view.state.step,
            "phase": view.state.phase.name.lower(),
            "section": view.section_name,
            "since": view.state.since,
            "at": view.state.at,
            "completed": view.state.completed,
        },
        "order": None if view.order is None else view.order._asdict(),
        "acknowledgement": None if view.acknowledgement is None else view.acknowledgement._asdict(),
        "steps": [
            {**msgspec.to_builtins(convert_step(step)), "on_device": step.on_device, "awaited": step.awaited}
            for step in last
        ],
    }


def replace_surrogates(text: str) -> str:
    """Replace undecodable characters, since file names may hold any bytes."""
    return text.encode(errors="replace").decode()


def _beacon_row(view: BeaconView, now: float) -> tuple[str, ...]:
    who, last = view.identity, view.steps(1)
    order = view.order
    answered = view.acknowledgement
    known = answered is not None and order is not None and answered.order == order.id
    return (
        who.job,
        f"{who.rank}/{who.world}",
        str(who.attempt),
        str(who.pid),
        "yes" if view.alive else "no",
        str(view.state.step),
        _format_phase(view),
        _format_phase_age(view, now),
        f"{last[-1].seconds:.3f} s" if last else "-",
        _format_number(last[-1].loss) if last else "-",
        "-" if order is None else f"{order.kind}: {answered.outcome.value if answered and known else 'not seen yet'}",
    )


def _format_phase(view: BeaconView) -> str:
    phase = view.state.phase.name.lower()
    return f"{phase}, {view.section_name}" if view.section_name else phase


def _format_phase_age(view: BeaconView, now: float) -> str:
    """The time in the current operation: since it began, or since the last write; for an ended rank until its last write."""
    began = view.state.at if view.section_name and view.alive else view.state.since
    seconds = (now if view.alive else view.state.at) - began
    return f"{max(seconds, 0.0):.1f} s"


def _list_parallel_ranks(who: Identity) -> list[str]:
    told = [(name.replace("_", " "), getattr(who, name)) for name in _GROUPS]
    return ([f"role {who.role}"] if who.role else []) + [f"{name} {value}" for name, value in told if value >= 0]


def _list_gpu_names(who: Identity) -> list[str]:
    return [text for text in (who.gpu_uuid, who.gpu_pci, f"index {who.gpu_index}" * (who.gpu_index >= 0)) if text]


def _format_order(order: MailboxOrder) -> str:
    marks = ["cancelled"] * order.cancelled + ["injected"] * order.injected
    condemned = [f"condemned: {', '.join(order.condemned)}"] if order.condemned else []
    said = [f"{order.kind} {order.id}", *marks, *condemned, f"until {format_timestamp(order.expires_at)}", order.reason]
    return ", ".join(part for part in said if part)


def _format_acknowledgement(answer: Acknowledgement) -> str:
    times = [
        (f"agreed on step {answer.agreed_step}", answer.agreed_at),
        (f"saved {answer.checkpoint}".rstrip(), answer.saved_at),
        ("left", answer.left_at),
    ]
    said = [f"{answer.outcome.value} {answer.order}", f"seen {format_timestamp(answer.seen_at)}"]
    said += [f"{what} {format_timestamp(at)}" for what, at in times if at > 0]
    return ", ".join([*said, *([answer.detail] if answer.detail else [])])


def _render_steps(steps: list[StepRecord]) -> Block:
    timed = [name for name in SECTION_NAMES if any(name in step.sections for step in steps)]
    header = ("STEP", "STARTED", "SECONDS", *(name.upper() for name in timed), "LOSS", "GRAD NORM", "TOKENS", "CLOCK")
    return _build_text_table(header, [_step_row(step, timed) for step in steps])


def _build_text_table(header: tuple[str, ...], rows: list[tuple[str, ...]], empty: str = "") -> Block:
    columns = [Column[tuple[str, ...]](title, itemgetter(at)) for at, title in enumerate(header)]
    return Rows(rows, columns, empty)


def _step_row(step: StepRecord, timed: list[str]) -> tuple[str, ...]:
    return (
        str(step.step),
        format_timestamp(step.started_at),
        f"{step.seconds:.6f}",
        *(f"{step.sections[name]:.6f}" if name in step.sections else "-" for name in timed),
        _format_number(step.loss),
        _format_number(step.grad_norm),
        "-" if step.tokens is None else str(step.tokens),
        "waits" if step.awaited else "gpu" if step.on_device else "host",
    )


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
