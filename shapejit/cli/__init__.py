"""The command line: one module per command, and the table of them in `parser`."""
