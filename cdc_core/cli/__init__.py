"""The command `cdc`: one module a command."""
