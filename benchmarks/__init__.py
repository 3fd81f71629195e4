"""asv benchmarks, one module a noun of the package. Cases are only ever appended."""
