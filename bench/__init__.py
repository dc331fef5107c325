"""What the budgets of the design take on this machine, and how often the methods are right: measured here, asserted nowhere."""
