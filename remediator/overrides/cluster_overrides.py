"""Overrides for the whole cluster: the automation mode, and silences. Pure.

They are part of the state, so they survive restarts. A repeated command changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from msgspec.structs import replace

from remediator.decisions.decision_settings import DecisionSettings
from remediator.model.journal_records import CONTROLLER_ACTOR, AuditEvent, Facts
from remediator.model.override_records import MODE, AlertSilence, ModeOverride, OperatorOverride
from remediator.model.pipeline_inputs import AlertsSilenced, ModeSet, ReceiverTried, SilenceEnded
from remediator.state.cluster_state import ClusterState
from vocabulary.text.duration_format import format_period


def find_mode_override(overrides: Mapping[str, OperatorOverride]) -> ModeOverride | None:
    """Return the operator's mode override, if there is one."""
    said = overrides.get(MODE)
    return said if isinstance(said, ModeOverride) else None


def effective_settings(overrides: Mapping[str, OperatorOverride], settings: DecisionSettings) -> DecisionSettings:
    """Return the settings with the effective mode: an operator's override goes before the configuration."""
    said = find_mode_override(overrides)
    return replace(settings, mode=said.mode) if said is not None else settings


def list_open_silences(overrides: Mapping[str, OperatorOverride]) -> tuple[AlertSilence, ...]:
    """Return the silences that have not ended, the first to end first."""
    found = [said for said in overrides.values() if isinstance(said, AlertSilence)]
    return tuple(sorted(found, key=lambda silence: (silence.until, silence.id)))


def find_matching_silence(
    known: Iterable[AlertSilence], node: str, kinds: Iterable[str], now: float
) -> AlertSilence | None:
    """Return the silence that mutes notifications about a node, if any; of several, the one that ends last.

    Args:
        known: silences.
        node: the node's name, or the subject of a group incident.
        kinds: of all findings concerned; one that no pattern matches is notified, and without any only ``*`` silences.
        now: UTC seconds.
    """
    named = tuple(kinds) or ("",)
    fit = [
        each
        for each in known
        if now < each.until and fnmatchcase(node, each.match) and all(fnmatchcase(kind, each.kinds) for kind in named)
    ]
    return max(fit, key=lambda each: (each.until, each.id), default=None)


def apply_cluster_override(
    state: ClusterState, item: ModeSet | AlertsSilenced | SilenceEnded | ReceiverTried
) -> set[str] | None:
    """Apply an operator's override. Returns the nodes it concerns: all (None) if the mode has changed."""
    if isinstance(item, ModeSet):
        return None if _apply_mode(state, item) else set()
    if isinstance(item, ReceiverTried):
        text = f"{item.actor} sends {item.receiver} a test message"
        _append_override_audit(
            state, item.at, "receiver_tried", item.actor, text, {"receiver": item.receiver}, item.address
        )
    elif isinstance(item, AlertsSilenced):
        _apply_silence(state, item)
    else:
        _apply_silence_end(state, item)
    return set()


def expire_silences(state: ClusterState, now: float) -> None:
    """Remove silences that have ended."""
    for silence in list_open_silences(state.operator_overrides):
        if now >= silence.until:
            text = f"the silence {silence.id} of {silence.actor} has ended: {_silence_text(silence)}"
            state.put_operator_override(silence.id, None)
            _append_override_audit(state, now, "silence_ended", CONTROLLER_ACTOR, text, {"silence": silence.id})


def _apply_mode(state: ClusterState, item: ModeSet) -> bool:
    said = find_mode_override(state.operator_overrides)
    if item.mode is None:
        if said is None:
            return False
        state.put_operator_override(MODE, None)
        to = "the configured one"
    else:
        if said is not None and (said.mode, said.actor, said.why) == (item.mode, item.actor, item.text):
            return False
        state.put_operator_override(MODE, ModeOverride(item.mode, item.actor, item.at, item.text))
        to = item.mode.value
    text = f"{item.actor} sets the mode to {to}" + (f": {item.text}" if item.text else "")
    facts: Facts = {"mode": item.mode.value if item.mode is not None else ""}
    _append_override_audit(state, item.at, "mode_set", item.actor, text, facts, item.address)
    return True


def _apply_silence(state: ClusterState, item: AlertsSilenced) -> None:
    silence = item.silence
    if silence.id in state.operator_overrides or silence.until <= item.at:
        return
    state.put_operator_override(silence.id, silence)
    text = f"{silence.actor} silences {_silence_text(silence)} for {format_period(round(silence.until - item.at))}: {silence.why}"
    facts: Facts = {"silence": silence.id, "match": silence.match, "kinds": silence.kinds, "until": silence.until}
    _append_override_audit(state, item.at, "silenced", silence.actor, text, facts, item.address)


def _apply_silence_end(state: ClusterState, item: SilenceEnded) -> None:
    silence = state.operator_overrides.get(item.silence)
    if not isinstance(silence, AlertSilence):
        return
    state.put_operator_override(silence.id, None)
    text = f"{item.actor} ends the silence {silence.id} of {silence.actor}: {_silence_text(silence)}"
    text += f": {item.text}" if item.text else ""
    _append_override_audit(state, item.at, "silence_ended", item.actor, text, {"silence": silence.id}, item.address)


def _silence_text(silence: AlertSilence) -> str:
    return f"alerts of {silence.kinds} on {silence.match}"


def _append_override_audit(
    state: ClusterState, at: float, kind: str, actor: str, text: str, data: Facts, address: str = ""
) -> None:
    if address:
        data = {**data, "address": address}
    state.changes.audit.append(AuditEvent(at=at, kind=kind, text=text, actor=actor, data=data))
