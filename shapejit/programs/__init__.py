"""Functions of a tensor traced once and run on many, and many unlike tensors in one launch."""
