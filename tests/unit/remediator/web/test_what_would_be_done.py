"""In modes that do not act the pages name the steps; a step that reached nobody, or waits for a part, shows as no success."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remediator.model.plan_steps import Mode
from remediator.model.views import MissingOutcome
from remediator.web import template_rendering
from remediator.web.incident_progress import step_text
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.web.simulated_browser import Browser
from tests.unit.remediator.web.test_work_pages import in_trouble, incident_of, text_of


@pytest.fixture(scope="module", params=[Mode.OBSERVE, Mode.RECOMMEND])
def watching(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    centre = in_trouble(tmp_path_factory.mktemp("centre"), request.param)
    yield centre
    centre.close()


@pytest.mark.parametrize("path", ["/", "/nodes/n1", "/incidents/{incident}"])
def test_the_steps_are_named_where_the_mode_keeps_them_from_being_done(watching: Inside, path: str) -> None:
    incident = incident_of(watching)
    rule = watching.service.engine.settings.policy.by_name[watching.service.engine.snapshot.incidents[incident].rule]
    text = text_of(Browser(watching).log_in("vic"), path.replace("{incident}", incident))
    assert "proposed" in text.casefold()
    for stage in rule.stages:
        assert ", ".join(step_text(str(step)) for step in stage) in text


def test_a_suspect_is_not_said_to_need_more_where_the_mode_alone_stops_it(watching: Inside) -> None:
    text = text_of(Browser(watching).log_in("vic"), "/nodes/n1")
    assert "more must" not in text


@pytest.mark.parametrize("lack", list(MissingOutcome))
def test_what_lacks_something_is_no_success(lack: MissingOutcome) -> None:
    macros = template_rendering._page_environment().get_template("work_macros.html.j2").make_module({"when": str})
    html = str(macros.result("succeeded", lack.text))  # type: ignore[attr-defined]  # made by the template
    assert f">{lack.text or 'succeeded'}<" in html
    assert bool(lack.text) == bool(lack.value)
    assert ("result-succeeded" in html) == (lack is MissingOutcome.NOTHING)
