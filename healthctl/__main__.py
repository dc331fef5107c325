"""Runs `healthctl` as `python -m healthctl`."""

from healthctl.main import main

main()
