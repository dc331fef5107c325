"""The HTTP API.

Lives here: authentication and limits, the route table, handlers, views, metrics and the OpenAPI document.
Started by `serving`; `web` builds its pages on it.
A handler checks the caller and the body, then submits an input to the engine or renders what the engine published.
May import `execution`, `monitoring`, `engine`, `config` and the packages below them.
"""
