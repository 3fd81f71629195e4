"""Arrays: Tensor, buffers, DLPack, and how arrays of other libraries enter and leave.

A library whose arrays need more than DLPack has a row in `libraries` and a module. What is done
to arrays stands in `operations/`; its names, in `operations.OPERATIONS` here, are imported first.
"""
