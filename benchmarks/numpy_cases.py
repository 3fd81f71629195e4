"""What NumPy copies: cases of another project, for `compare --cases` and `track`.

A case is a function of the package and of NumPy; it makes what is measured, and its baseline.
"""

PACKAGE = "numpy"


def beside_memcpy(look, shape, dtype):
    """A view copied, beside a plain copy of as many bytes."""

    def ways(package, np):
        x = look(package.ones(shape, dtype))
        out, source = package.empty_like(x, order="C"), np.ones(x.nbytes, np.uint8)
        target = np.empty_like(source)
        return {
            "numpy": lambda: package.copyto(out, x),
            "memcpy": lambda: np.copyto(target, source),
        }

    return ways


def concatenate(package, np):
    """Arrays joined, beside a loop of assignments."""
    parts = [package.ones((256, 1024), "f4") for _ in range(4)]
    out = package.empty((1024, 1024), "f4")

    def loop():
        for k, part in enumerate(parts):
            out[256 * k : 256 * (k + 1)] = part

    return {"numpy": lambda: package.concatenate(parts, out=out), "loop": loop}


CASES = {
    "transpose-float32": beside_memcpy(lambda x: x.T, (1024, 1024), "f4"),
    "transpose-uint8": beside_memcpy(lambda x: x.T, (2048, 2048), "u1"),
    "channels-last": beside_memcpy(lambda x: x.transpose(0, 2, 3, 1), (8, 3, 224, 224), "f4"),
    "flip": beside_memcpy(lambda x: x[:, ::-1], (1024, 1024), "f4"),
    "every-second-column": beside_memcpy(lambda x: x[:, ::2], (1024, 2048), "u2"),
    "concatenate": concatenate,
}
