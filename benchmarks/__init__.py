"""Benchmarks: `suite` is asv's, `tools` are commands beside it; README.md says how to use both."""
