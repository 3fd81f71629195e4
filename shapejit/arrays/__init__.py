"""Arrays: Tensor, buffers, DLPack, and how arrays of other libraries enter and leave."""
