"""Generated pages of docs/reference: one file per page, each with `page() -> str`."""
