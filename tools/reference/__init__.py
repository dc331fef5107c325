"""Generators of the pages in docs/reference: one module per page, each with a `render_…_page() -> str`."""
