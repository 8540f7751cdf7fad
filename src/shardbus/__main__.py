"""`python -m shardbus` is the same as the `shardbus` command."""

from shardbus.app.cli.main import main

main()
