"""Shapes: what is asked for, what it resolves to, and where elements lie."""
