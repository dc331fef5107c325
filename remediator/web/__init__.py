"""Web pages: what is broken, what automation did and why, what comes next, and how to stop it.

The package renders the API's answers as HTML and turns browser forms into API calls. It neither decides nor reads the store:
a page is an in-process API client (`page_request.call_api`) with the person's own rights, so `healthctl` can show and do
everything that a page can. The server in `remediator.serving` mounts `web_application`.

To add a page:

1. `pages/NAME_page.py`: `async def show_NAME_page(visit: PageRequest) -> Response`, which asks the API
   (`await visit.ask("/v1/…", SomeView)`) and returns `await visit.page("NAME.html.j2", title="…", …)`. A form's target is a
   second function for POST: `visit.form` holds the fields (origin and CSRF token are already checked),
   `await visit.submit("/v1/…", CommandText(…))` performs the action, and `visit.go("/…", "key")` redirects; the message for that key
   is in `template_rendering.DONE`.
2. `templates/NAME.html.j2`: `{% extends "base.html.j2" %}` and `{% block main %}`. Values are escaped and control characters
   made visible; times go through `when(at)`. A `<section id="…" data-live>` updates in place; forms contain `{{ csrf() }}`.
   `macros.html.j2` has states, tables and empty lists.
3. One row in `page_routes.PAGES`: `nav` adds it to the navigation, `key` to the keyboard shortcuts after `g`.
4. A test in `tests/unit/remediator/web`, which also checks that a hostile name is shown as text.

A Refusal of the API becomes an error page; do not catch it.
"""
