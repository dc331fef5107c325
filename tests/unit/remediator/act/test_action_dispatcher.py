"""Hooks against real programs; the outbox has tests of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from remediator.model.delivery import NotificationMessage
from remediator.model.journal_records import Action
from remediator.model.scheduler_hold import ActionResult
from remediator.notifications.action_dispatcher import ActionDispatcher, SiteHook

MESSAGE = NotificationMessage(
    "a1", "alert", "c", "n1", "inc-1", "$(touch /tmp/x) `id`", "r", "text\n; rm -rf /", injected=False
)


def action(verb: str, how: str = "") -> Action:
    return Action(
        id="a1", incident="inc-1", decision="d", node="n1", verb=verb, planned_at=0, deadline=9, data={"how": how}
    )


def test_with_nobody_to_tell_the_plan_goes_on_and_says_so() -> None:
    outcome = ActionDispatcher({}).do(action("alert"), MESSAGE)
    assert outcome.result is ActionResult.DONE
    assert "alerts.receivers" in outcome.detail


def test_a_hook_gets_the_message_as_data_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = (
        f"import sys,os,json; open({str(out)!r},'w').write(json.dumps([sys.stdin.read(), sys.argv, dict(os.environ)]))"
    )
    hooks = {"h": SiteHook(command=(sys.executable, "-c", script))}
    assert ActionDispatcher(hooks).do(action("exec", "h"), MESSAGE).result is ActionResult.DONE
    text, argv, environment = json.loads(out.read_text())
    assert json.loads(text)["text"] == MESSAGE.text
    assert argv == ["-c"]
    assert set(environment) <= {"PATH", "LC_ALL", "LC_CTYPE"}


@pytest.mark.parametrize(
    ("hook", "result", "says"),
    [
        (
            SiteHook(command=(sys.executable, "-c", "import sys; sys.exit('no power')")),
            ActionResult.REFUSED,
            "exit 1: no power",
        ),
        (SiteHook(command=("/nowhere/hook",)), ActionResult.REFUSED, "cannot be started: No such file"),
        (
            SiteHook(command=(sys.executable, "-c", "import time; time.sleep(60)"), timeout_s=0.2),
            ActionResult.FAILED,
            "did not end within 0.2 s",
        ),
        (None, ActionResult.REFUSED, "the configuration lists no hook 'h'"),
    ],
)
def test_a_hook_that_does_not_work_is_said(hook: SiteHook | None, result: ActionResult, says: str) -> None:
    outcome = ActionDispatcher({} if hook is None else {"h": hook}).do(action("exec", "h"), MESSAGE)
    assert outcome.result is result
    assert says in outcome.detail
