"""Schemes of quantised weights: which tensors belong together, and what their numbers mean."""
