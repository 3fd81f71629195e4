"""Doors to other libraries: one leaf module each, which the core never imports."""
