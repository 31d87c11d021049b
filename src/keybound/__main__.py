"""`python -m keybound` is `keybound`."""

from keybound.cli.main import main

main()
