"""Pages for people: what is broken, what the system did, why, what it will do next, and how to stop it.

Who may live here: what turns the API's answers into HTML for a browser, and a browser's forms into calls of the API. Nothing
here decides or reads the store: a page is a client of the API within the process (`inside`), with the person's own rights,
so whatever a page shows or does, `healthctl` can show and do too.

To add a page:

1. `pages/NAME.py`: `async def show(visit: Visit) -> Response`, which asks (`await visit.ask("/v1/…", SomeView)`) and ends with
   `return await visit.page("NAME.html.j2", title="…", …)`. A form's target is a second function, for POST: `visit.form` holds
   the fields (origin and CSRF token are checked before it runs), `await visit.tell("/v1/…", Words(…))` does it, and
   `visit.go("/…", "done-word")` leads on; words to show after it stand in `rendering.DONE`.
2. `templates/NAME.html.j2`: `{% extends "base.html.j2" %}` and `{% block main %}`. Values are escaped and control characters
   written out; times go through `when(at)` or `ago`, durations through `length`. A `<section id="…" data-live>` is fetched and
   changed in place when something happens; forms with `{{ csrf() }}`. `macros.html.j2` has states, tables, empty lists.
3. one row in `routes.PAGES`. With `nav` it stands in the navigation, with `key` it is reached by `g` and that letter.
4. its test in `tests/unit/remediator/web`: a page must say what a hostile name says, as text.

A Refusal of the API becomes an error page with its words; nothing needs to be caught.
"""
