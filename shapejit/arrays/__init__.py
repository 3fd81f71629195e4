"""Arrays: Tensor, buffers, DLPack, and how arrays of other libraries enter and leave.

A library whose arrays need more than DLPack has a row in `libraries`, and a module. Operations on
arrays are in the package `operations/`; their names are in the table `arrays/operations`, which the
package needs at import.
"""
