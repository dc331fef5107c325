"""`python -m healthctl` is `healthctl`."""

from healthctl.main import main

main()
