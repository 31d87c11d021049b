"""`python -m keybound` is `keybound`."""

from keybound.cli import main

main()
