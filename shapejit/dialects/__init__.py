"""One module per specification, which translates its arguments into a Request."""
