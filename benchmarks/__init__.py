"""Benchmarks: `suite` is asv's, `tools` are further commands; README.md documents both."""
