"""Packing formats: where the bits of packed codes are stored, as rows of a table."""
