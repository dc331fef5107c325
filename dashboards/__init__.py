"""What people look at and are called by: Grafana dashboards made by this package, Prometheus rules, Alertmanager's routes.

Here live generators of the files beside them, and nothing that runs in production. `python -m dashboards` writes grafana/*.json and the Helm chart's copies anew.
"""
