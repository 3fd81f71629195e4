"""The benchmark cases, and `shapejit bench`.

Cases do not import the rest of the package: each is given the package that it measures. So
`benchmarks/` can load them by path, and run today's cases with older versions of the package.
"""
