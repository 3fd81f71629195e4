"""The benchmark cases as tables, and the side-by-side measurement."""
