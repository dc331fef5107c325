"""`python -m remediator` is `remediator`."""

from remediator.main import main

main()
