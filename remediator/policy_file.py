"""Read playbooks from YAML. All or nothing: a file with one mistake never replaces a good policy.

    rules:
      - name: gpu-fell-off-the-bus
        why: one sentence for the person at 3 a.m.
        match: {findings: [xid/79], severities: [fatal]}
        steps:
          - [drain, {notify_trainer: abort, timeout_s: 60}]   # a list runs side by side
          - replace

Every error names the file, the line and, for a wrong word, the nearest right one.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import yaml

from remediator.decide.policy import Match, Policy, Rule
from remediator.model.records import Step, Verb
from vocabulary.finding import Severity

_LINE = "__line__"
_HOW = {
    Verb.NOTIFY_TRAINER: ("graceful", "abort"),
    Verb.PREFLIGHT: ("gate", "standard", "burn-in"),
}
_MODIFIERS = ("timeout_s", "on_failure")


class PolicyError(ValueError):
    """A playbook that cannot be used: where, what, and the nearest right word."""


class _Word(str):
    """A text that knows its line."""

    __slots__ = ("line",)
    line: int


class _Loader(yaml.SafeLoader):
    """Remembers the line of every mapping and text, and refuses a key given twice."""

    def construct_word(self, node: yaml.ScalarNode) -> _Word:
        word = _Word(self.construct_scalar(node))
        word.line = node.start_mark.line + 1
        return word

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        keys = [self.construct_object(key) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"'{key}' is given twice", node.start_mark)
        return {**super().construct_mapping(node, deep), _LINE: node.start_mark.line + 1}


_Loader.add_constructor("tag:yaml.org,2002:str", _Loader.construct_word)


def load_policy(paths: Iterable[Path]) -> Policy:
    """Read the files in order; earlier rules take precedence.

    Raises:
        PolicyError: a file is missing, is no YAML, or says something that is no policy.
    """
    rules: list[Rule] = []
    digest = hashlib.sha256()
    sources = []
    for path in paths:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise PolicyError(
                f"{path}: cannot be read ({error.strerror}); name an existing playbook under 'playbooks'"
            ) from error
        digest.update(data)
        sources.append(path.name)
        rules += _rules(path, data)
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise PolicyError(f"{', '.join(sources)}: two rules are called '{name}'; names must differ")
    if not rules:
        raise PolicyError("no playbook gives any rule; list at least one file under 'playbooks'")
    return Policy(rules=tuple(rules), digest=digest.hexdigest()[:12], source=", ".join(sources))


def _rules(path: Path, data: bytes) -> list[Rule]:
    try:
        document = yaml.load(data, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise PolicyError(f"{path}: {' '.join(str(error).split())}") from error
    top = _mapping(document, path, 1, "a playbook", ("rules",))
    rules = top.get("rules")
    if not isinstance(rules, list):
        raise PolicyError(f"{path}:1: 'rules' must be a list of rules")
    return [_rule(item, path) for item in rules]


def _rule(item: object, path: Path) -> Rule:
    fields = _mapping(item, path, 1, "a rule", ("name", "why", "match", "steps"))
    line = fields[_LINE]
    for key in ("name", "why"):
        if not isinstance(fields.get(key), str) or not fields[key].strip():
            raise PolicyError(f"{path}:{line}: a rule needs '{key}', a text")
    match = _mapping(fields.get("match", {_LINE: line}), path, line, "'match'", ("findings", "severities"))
    severities = [
        _word(s, tuple(Severity), path, line, "severity")
        for s in _strings(match.get("severities", []), path, line, "severities")
    ]
    stages = fields.get("steps", [])
    if not isinstance(stages, list):
        raise PolicyError(f"{path}:{line}: 'steps' of {fields['name']} must be a list")
    return Rule(
        name=str(fields["name"]),
        why=" ".join(fields["why"].split()),
        match=Match(
            tuple(str(f) for f in _strings(match.get("findings", []), path, line, "findings")), tuple(severities)
        ),
        stages=tuple(
            tuple(_step(s, path, line) for s in (stage if isinstance(stage, list) else [stage])) for stage in stages
        ),
    )


def _step(item: object, path: Path, line: int) -> Step:
    """``drain`` or ``{preflight: gate, timeout_s: 900, on_failure: replace}``."""
    if isinstance(item, str):
        return Step(verb=_word(item, tuple(Verb), path, line, "step"))
    fields = _mapping(item, path, line, "a step", (*Verb, *_MODIFIERS))
    line = fields.pop(_LINE)
    verbs = [key for key in fields if key not in _MODIFIERS]
    if len(verbs) != 1:
        raise PolicyError(
            f"{path}:{line}: a step has exactly one of {', '.join(v.value for v in Verb)}; this has {', '.join(verbs) or 'none'}"
        )
    verb = Verb(verbs[0])
    how = fields[verbs[0]]
    choices = _HOW.get(verb, ())
    how = _word(how, choices, path, line, verb.value) if choices else ""
    timeout_s = fields.get("timeout_s", 300)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s <= 30 * 86400:
        raise PolicyError(f"{path}:{line}: 'timeout_s' is {timeout_s!r}; give seconds, more than 0 and at most 30 days")
    on_failure = fields.get("on_failure")
    return Step(
        verb=verb,
        how=how,
        timeout_s=float(timeout_s),
        on_failure=None if on_failure is None else _step(on_failure, path, line),
    )


def _mapping(item: object, path: Path, line: int, what: str, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise PolicyError(
            f"{path}:{line}: {what} must be a mapping with {', '.join(str(getattr(k, 'value', k)) for k in known)}, not {item!r}"
        )
    for key in item:
        if key != _LINE:
            _word(key, known, path, item[_LINE], f"key of {what}")
    return item


def _word(word: object, known: Iterable[Any], path: Path, line: int, what: str) -> Any:
    line = getattr(word, "line", line)
    words = {str(getattr(k, "value", k)): k for k in known}
    if isinstance(word, str) and word in words:
        return words[word]
    near = difflib.get_close_matches(str(word), words, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(words)}"
    raise PolicyError(f"{path}:{line}: '{word}' is no {what}; {hint}")


def _strings(item: object, path: Path, line: int, what: str) -> list[str]:
    if not isinstance(item, list) or not all(isinstance(s, str) for s in item):
        raise PolicyError(f"{path}:{line}: '{what}' must be a list of texts")
    return item
