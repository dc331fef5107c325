"""One file per training framework; each imports its framework, so import only what the process already uses."""
