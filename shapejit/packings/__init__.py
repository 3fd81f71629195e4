"""Packing formats as data: where the bits of one tensor lie, in rows of facts."""
