"""The Prometheus page: the last status, restated. A scrape reads memory only; it never touches a driver or a disk."""
