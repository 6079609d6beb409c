"""The command `cdc`: its subcommands, by topic."""
