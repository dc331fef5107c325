"""One file a page: it asks the API, picks what to show, and names its template. Pages are strangers to each other."""
