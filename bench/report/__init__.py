"""One report of all budgets: records, the machine, rendering (pure), and the command that runs each budget in a process of its own."""
