"""Orders on the node: fetched, made durable, then performed; one file per kind. An order never runs twice to its end."""
