"""Loads playbook files as a policy. All or nothing: a file with an error never replaces a valid policy.

A file's own rules come first, then those of the files it includes. An override changes a rule of an included file in
place, so a site never edits what is shipped. ``shipped/NAME`` is a file of this package, any other path is relative to
the file that names it.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

import playbooks
from remediator.decisions.policy import Policy, PolicyRule
from remediator.model.plan_steps import Step, Verb
from remediator.playbook.playbook_document import OverrideDocument, PlaybookDocument
from remediator.playbook.playbook_errors import PolicyError
from remediator.playbook.rule_compiler import check_job_rule, compile_rule, compile_stages
from remediator.playbook.yaml_source import YamlSource, read_source_bytes
from vocabulary.text.plurals import format_count

SHIPPED_FOLDER = Path(playbooks.__path__[0])
SHIPPED = SHIPPED_FOLDER / "default.yaml"
RULES_MAX = 1000
FILES_MAX = 100


class _LoadedFiles(msgspec.Struct):
    """What has been read so far: the digest covers every byte, in the order read."""

    digest: hashlib._Hash
    seen: dict[Path, None]


def load_policy(paths: Iterable[Path], hooks: Collection[str] | None = None) -> Policy:
    """Read the files in order; earlier rules take precedence.

    Args:
        paths: files, each with what it includes.
        hooks: names that `exec` may use; None: unknown here, any is accepted.

    Raises:
        PolicyError: a file is missing, is no YAML, or is no valid policy; names file, line and column.
    """
    files = _LoadedFiles(hashlib.sha256(), {})
    paths = list(paths)
    rules = [rule for path in paths for rule in _load_rules(path, files, "", hooks)]
    _check_unique_names(rules)
    for rule in rules if hooks is not None else ():
        _check_hooks(rule.steps, hooks or (), rule)
    if not rules:
        raise PolicyError("the playbooks contain no rule; list at least one file under 'playbooks'")
    if len(rules) > RULES_MAX:
        raise PolicyError(f"{format_count(len(rules), 'rule')}; at most {RULES_MAX} are allowed")
    return Policy(rules, files.digest.hexdigest()[:12], ", ".join(path.name for path in paths))


def playbook_files(path: Path) -> list[Path]:
    """Return a playbook and everything it includes, in order of precedence.

    Raises:
        PolicyError: as `load_policy`.
    """
    files = _LoadedFiles(hashlib.sha256(), {})
    _load_rules(path, files, "", None)
    return list(files.seen)


def _load_rules(path: Path, files: _LoadedFiles, wanted_by: str, hooks: Collection[str] | None) -> list[PolicyRule]:
    try:
        known = path.resolve() in files.seen
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, or an impossible file name
        raise PolicyError(f"{wanted_by or path!s}: {str(path)!r} is not a usable path ({error})") from error
    if known:
        return []  # included twice, or by itself: its rules have their place already
    if len(files.seen) >= FILES_MAX:
        raise PolicyError(f"{wanted_by}: more than {FILES_MAX} files; check whether a playbook includes its own folder")
    files.seen[path.resolve()] = None
    try:
        data = read_source_bytes(path)
    except PolicyError as error:
        raise PolicyError(f"{wanted_by}: {error}" if wanted_by else str(error)) from error
    files.digest.update(len(data).to_bytes(8, "big") + data)
    text = YamlSource(path, data, PlaybookDocument)
    rules = [compile_rule(rule, text, ("rules", i)) for i, rule in enumerate(text.record.rules)]
    included = [
        rule
        for i, name in enumerate(text.record.include)
        for rule in _load_rules(_resolve_include(name, path), files, text.place("include", i), hooks)
    ]
    for i, override in enumerate(text.record.override):
        included = list(_override_rules(included, override, text, i))
    return [*rules, *included]


def _resolve_include(name: str, path: Path) -> Path:
    if name.startswith("shipped/"):
        return SHIPPED_FOLDER / name.removeprefix("shipped/")
    return path.parent / name


def _override_rules(
    rules: list[PolicyRule], override: OverrideDocument, text: YamlSource[PlaybookDocument], index: int
) -> Iterator[PolicyRule]:
    names = [rule.name for rule in rules]
    if override.rule not in names:
        near = difflib.get_close_matches(override.rule, names, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "only rules of included files can be overridden"
        raise PolicyError(
            f"{text.place('override', index, 'rule')}: no included rule is called '{override.rule}'; {hint}"
        )
    for rule in rules:
        if rule.name != override.rule:
            yield rule
        elif override.enabled:
            yield _override_rule(rule, override, text, index)


def _override_rule(
    rule: PolicyRule, override: OverrideDocument, text: YamlSource[PlaybookDocument], index: int
) -> PolicyRule:
    place = text.place("override", index)
    changed = replace(rule, place=f"{place} over {rule.place}")
    if override.why is not None:
        changed = replace(changed, why=" ".join(override.why.split()))
    if override.match is not None:
        changed = replace(changed, match=override.match)
    if override.mode is not None:
        changed = replace(changed, mode=override.mode)
    if override.guards is not None:
        changed = replace(changed, guards=override.guards)
    if override.steps is not None:
        changed = replace(changed, stages=compile_stages(override.steps, text, ("override", index, "steps")))
    check_job_rule(changed)
    return changed


def _check_hooks(steps: Iterable[Step], hooks: Collection[str], rule: PolicyRule) -> None:
    for step in steps:
        if step.verb is Verb.EXEC and step.how not in hooks:
            near = difflib.get_close_matches(step.how, hooks, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(hooks)) or 'none'}"
            raise PolicyError(
                f"{rule.place}: {rule.name}: the configuration lists no hook '{step.how}' ('hooks'); {hint}"
            )


def _check_unique_names(rules: list[PolicyRule]) -> None:
    places: dict[str, str] = {}
    for rule in rules:
        if rule.name in places:
            raise PolicyError(
                f"{rule.place}: a rule called '{rule.name}' already exists at {places[rule.name]}; "
                "give it another name, or change the included one under 'override'"
            )
        places[rule.name] = rule.place
