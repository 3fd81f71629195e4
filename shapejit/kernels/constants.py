"""Numbers that kernels bake in, and the words of the tables that they read.

Importing this module does not import numba.
"""

MAX_RANK = 64  # dims of an ndarray

LINE = 64  # bytes of a cache line, and of a streaming store
PIECE = 16  # bytes of the pieces that a block is made of: one lane of a vector
PAGE = 4096
STAGE = 4 * PAGE  # bytes that gather before they are streamed; half an L1 cache
STAGE_BYTES = 2 * STAGE  # with the largest block that may still be added

# What `shares.take` reads and writes: of a job (`work`), of one of its threads (`span`),
# of all jobs of a process (`signal`).
NEXT, SHARES, DONE, TOTAL, COUNT, OPEN, SIGNAL = range(7)
WORK = 8  # ints of `work`: a cache line
TENSOR, LOW, HIGH, UNIT, END, UNDERWAY, OWNER = range(7)
SPAN = 8  # ints of `span` before the positions of the loops

# Blocks of elements narrower than a byte.
BIT_COLUMNS = 512  # elements of a tile along the source
DENSE_PIECES = 2  # in the table of a tile: dense, and rows are whole pieces
MOST_AHEAD = 16  # rows of the source that are asked for before they are needed
CODES_BLOCK = 4096  # elements that are codes together, in an L1 cache

# What becomes of a tensor of a batch, see `shapes.settle`.
VIEW, COPY, EMPTY, REFUSED, APART = range(5)

# Columns of the tables of `casts`: of its loops, whose last step goes back by the columns
# from `BACK` on, and of its runs; and where things stand on its stage.
BOX_SIZE, BOX_SOURCE, BOX_TARGET, BOX_SCALE, BOX_ZERO = range(5)
BACK = 4
RUN_SOURCE, RUN_TARGET, RUN_SCALE, RUN_ZERO, RUN_SHIFT = range(5)
FETCHED, SCALES, ZEROS, CONVERTED, PACKED = range(5)
