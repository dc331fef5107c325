"""What only the results of several devices, or the facts of several nodes, say together. Pure: one file per question."""
