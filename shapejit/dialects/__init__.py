"""One module a specification: its words translated into a Request."""
