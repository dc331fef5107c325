"""One module per page: it asks the API, selects what to show, and names its template. Pages do not import each other."""
