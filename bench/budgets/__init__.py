"""The budgets of the design, one file each, registered in `table.py`. A file measures with the bench of its part; it has no figures of its own making."""
