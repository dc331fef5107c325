"""Pages of docs/reference that are made from what the code itself says: one file a page, each with `page() -> str`; no page is written by hand twice."""
