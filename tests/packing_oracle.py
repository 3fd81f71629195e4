"""Where every packing format puts a code, bit by bit, as its specification says.

Each function gets the dims (rows, columns) and the width of the codes, the place (r, c) of a
code, and the number k of one of its bits; it returns the bit's address. Rows are outputs,
columns inputs, for all formats.
"""

import numpy as np


def flat(rows, columns, width, r, c):
    return r * columns + c


def stream(rows, columns, width, r, c, k):
    return flat(rows, columns, width, r, c) * width + k


def high_first(rows, columns, width, r, c, k):
    bit = flat(rows, columns, width, r, c) * width
    return bit // 8 * 8 + 8 - width - bit % 8 + k


def one_per_byte(rows, columns, width, r, c, k):
    return flat(rows, columns, width, r, c) * 8 + k


def gptq(rows, columns, width, r, c, k):
    """int32 (in * bits / 32, out), a column one stream of bits."""
    word, bit = divmod(c * width + k, 32)
    return (word * rows + r) * 32 + bit


def gptq_zeros(rows, columns, width, r, c, k):
    """int32 (groups, out * bits / 32)."""
    return (c * rows + r) * width + k


def awq(rows, columns, width, r, c, k):
    """int32 (in, out / 8): nibble i holds column [0, 2, 4, 6, 1, 3, 5, 7][i]."""
    nibble = [0, 2, 4, 6, 1, 3, 5, 7].index(r % 8)
    return ((c * (rows // 8) + r // 8) * 8 + nibble) * 4 + k


def padded_rows(unit):
    def place(rows, columns, width, r, c, k):
        pitch = -(-columns * width // unit) * unit
        return r * pitch + c * width + k

    return place


def blocks_of(block):
    def place(rows, columns, width, r, c, k):
        return r * -(-columns // block) * block * width + c * width + k

    return place


def swizzled(rows, columns, width, r, c, k):
    """128 x 4 tiles: 32 rows of 16 bytes, in which stand rows 0, 32, 64 and 96 of the tile."""
    tile = r // 128 * -(-columns // 4) + c // 4
    return (tile * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4) * 8 + k


def ggml(nbytes, halves, fifths=None):
    """Blocks of 32 in `nbytes`: the low nibbles of 16 bytes are the first half."""

    def place(rows, columns, width, r, c, k):
        block, e = divmod(flat(rows, columns, width, r, c), 32)
        if k == 4:
            return (block * nbytes + fifths) * 8 + e
        return (block * nbytes + halves + e % 16) * 8 + e // 16 * 4 + k

    return place


def q8_0(rows, columns, width, r, c, k):
    block, e = divmod(flat(rows, columns, width, r, c), 32)
    return (block * 34 + 2 + e) * 8 + k


def openvino_split(rows, columns, width, r, c, k):
    """3 bytes: the low bits of all elements in two, the high bits in one, the first one highest."""
    per = {3: 8, 6: 4}[width]
    low = {3: 2, 6: 4}[width]
    group, e = divmod(flat(rows, columns, width, r, c), per)
    if k < low:
        byte, e = divmod(e, per // 2)
        return (group * 3 + byte) * 8 + 8 - low * (e + 1) + k
    high = width - low
    return (group * 3 + 2) * 8 + 8 - high * (e + 1) + k - low


BLOCK = 32  # of MatMulNBits here

# The place of a bit, whether signed codes are stored less their least value, and what is
# added beside.
PLACES = {
    **dict.fromkeys(["lsb", "onnx", "safetensors", "dlpack", "openvino"], (stream, 0, 0)),
    **dict.fromkeys(["msb", "bitsandbytes", "openvino@2023", "openvino:u1"], (high_first, 0, 0)),
    "padded": (one_per_byte, 0, 0),
    "openvino:u3u6": (openvino_split, 0, 0),
    "gptq:qweight": (gptq, 1, 0),
    "gptq:qzeros@v1": (gptq_zeros, 1, -1),
    "gptq:qzeros@v2": (gptq_zeros, 1, 0),
    "awq:gemm": (awq, 1, 0),
    "awq:gemv": (stream, 1, 0),
    "onnx:matmulnbits": (blocks_of(BLOCK), 1, 0),
    "torch:x2": (stream, 0, 0),
    "torchao:tinygemm": (high_first, 1, 0),
    "compressed-tensors": (padded_rows(32), 1, 0),
    "mlx": (stream, 1, 0),
    "nvfp4:scale-swizzle": (swizzled, 0, 0),
    "gpt-oss:blocks": (stream, 0, 0),
    "gguf:q4_0": (ggml(18, 2), 1, 0),
    "gguf:q4_1": (ggml(20, 4), 1, 0),
    "gguf:q5_0": (ggml(22, 6, 2), 1, 0),
    "gguf:q5_1": (ggml(24, 8, 4), 1, 0),
    "gguf:q8_0": (q8_0, 0, 0),
    "gguf:mxfp4": (ggml(17, 1), 0, 0),
}


def stored(name, codes, width, signed, nbytes, bits=None):
    """The bytes of a stored array with these codes (rows, columns); all other bits are zero.

    `bits` are those of a stored code where they are fewer than those of an element.
    """
    place, unsigned, bias = PLACES[name]
    bits = bits or width
    rows, columns = codes.shape
    lifted = codes.astype(np.int64) + bias + ((1 << (bits - 1)) if unsigned and signed else 0)
    memory = np.zeros(8 * nbytes, np.uint8)
    for r, c in np.ndindex(rows, columns):
        code = int(lifted[r, c]) % (1 << bits)
        for k in range(bits):
            memory[place(rows, columns, width, r, c, k)] = code >> k & 1
    return np.packbits(memory, bitorder="little")
