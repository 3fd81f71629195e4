"""The public table of schemes; a Scheme decodes, encodes and converts one weight."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..arrays.tensor import Tensor
from ..dtypes.table import dtype
from ..errors import FormatError
from ..packings.named_rows import NamedRows
from ..runtime.ndarrays import is_a
from . import decoding
from .bands import cut
from .detection import detect
from .encoding import encode
from .forms import SchemeRow
from .groups import Group, fault
from .matching import group_of, sizes_of
from .rows import BY_NAME, ROWS
from .transcoding import transcode
from .writing import is_written

DECODED_DTYPES = ("bfloat16", "float16", "float32")
ROUNDINGS = ("once", "reference")


class Scheme:
    """One way in which checkpoints store quantised weights: a row of `shapejit.schemes`.

    >>> import shapejit as sj
    >>> sj.schemes["awq"]
    shapejit.schemes['awq']
    """

    def __init__(self, row: SchemeRow) -> None:
        self.row = row

    @property
    def name(self) -> str:
        """The name in `shapejit.schemes`.

        >>> import shapejit as sj
        >>> sj.schemes["awq"].name
        'awq'
        """
        return self.row.name

    @property
    def source(self) -> str:
        """The reference: its project, file and function.

        >>> import shapejit as sj
        >>> sj.schemes["awq"].source
        'GPTQModel, quantization/awq/utils/packing_utils.py, dequantize_gemm'
        """
        return self.row.source

    @property
    def project(self) -> str:
        """The project that writes such weights, whose code is the reference.

        >>> import shapejit as sj
        >>> sj.schemes["awq"].project
        'GPTQModel'
        """
        return self.row.source.partition(",")[0]

    @property
    def library(self) -> str:
        """The package that decodes it; "" if shapejit's kernels do.

        >>> import shapejit as sj
        >>> sj.schemes["awq"].library, sj.schemes["gguf:iq4_nl"].library
        ('', 'gguf')
        """
        return self.row.library

    @property
    def encodes(self) -> bool:
        """Whether `encode` can quantise to this scheme.

        >>> import shapejit as sj
        >>> sj.schemes["awq"].encodes, sj.schemes["gguf:iq4_nl"].encodes
        (True, False)
        """
        return any(form.rule is not None for form in self.row.forms)

    @property
    def converts(self) -> bool:
        """Whether `convert` can store weights of other schemes in it.

        >>> import shapejit as sj
        >>> sj.schemes["awq"].converts, sj.schemes["gguf:iq4_nl"].converts
        (True, False)
        """
        return any(map(is_written, self.row.forms))

    def __repr__(self) -> str:
        return f"shapejit.schemes[{self.name!r}]"

    def decode(
        self,
        parts: Mapping[str, Any],
        *,
        dtype: object = "bfloat16",
        out: Tensor | None = None,
        rounding: str = "once",
        **settings: Any,
    ) -> Tensor:
        """Decode the tensors `parts` of one weight to bfloat16, float16 or float32.

        `parts` maps the last components of names in a checkpoint to Tensors or ndarrays. `settings`
        (`bits`, `group_size` in elements, ...) are only needed if shapes do not determine them. The
        arithmetic is float32, and the result is rounded once, to `dtype`; with
        `rounding="reference"` intermediate results are rounded where `source` rounds them. `out` (a
        C-contiguous Tensor of the result's shape and dtype) is filled and returned. Raises
        FormatError for parts that are missing or do not fit and for other dtypes, DTypeError and
        ReshapeError for an `out` that does not fit.

        >>> import numpy as np, shapejit as sj
        >>> codes = np.array([[0x76543210, 0x0EDCBA98]], np.int32)
        >>> parts = {"weight_packed": codes, "weight_scale": np.array([[0.5, 2]], np.float32)}
        >>> x = sj.schemes["int4:compressed-tensors"].decode(parts, dtype="float32")
        >>> x.numpy()[0, 6:10]
        array([-1. , -0.5,  0. ,  2. ], dtype=float32)
        """
        kind = self._decoded(dtype)
        if rounding not in ROUNDINGS:
            raise FormatError(f"rounding is one of {', '.join(ROUNDINGS)}, not {rounding!r}")
        group = self._group(parts, settings)
        return decoding.decode(group, kind, out, kind if rounding == "reference" else None)

    def encode(self, x: Any, **settings: Any) -> dict[str, Tensor]:
        """Quantise a weight by round to nearest: return its parts.

        `x` is an ndarray or Tensor of floats, of the shape that `decode` returns, after any dims of
        stacked experts. `settings` are those of `decode`, and: `symmetric` (default True: integer
        codes of a range around 0), `scale_dtype` and `dtype` (of scales and codes, if the scheme
        allows several), `amax` (the largest magnitude of all weights that share NVFP4's global
        scale). Scales follow the rule of the reference; nothing is calibrated. Raises FormatError
        for shapes and settings that the scheme cannot store, and for schemes that are only
        decoded; DTypeError for other dtypes than floats.

        >>> import numpy as np, shapejit as sj
        >>> parts = sj.schemes["gguf:q8_0"].encode(np.ones((2, 32), np.float32))
        >>> parts["weight"].shape
        (2, 34)
        """
        return encode(self.row, x, settings)

    def convert(
        self, parts: Mapping[str, Any], to: str | Scheme, **settings: Any
    ) -> dict[str, Tensor]:
        """Store the weight in another scheme, with exactly the same codes and scales.

        `parts` and `settings` are those of `decode`; `to` is a Scheme or its name. Raises
        FormatError, which says what the other scheme cannot hold (the width of codes, the blocks,
        zero points, scales that its dtype would round, act-order), and UnknownNameError.

        >>> import numpy as np, shapejit as sj
        >>> parts = sj.schemes["mxfp4:gpt-oss"].encode(np.ones((32, 2), np.float32))
        >>> sj.schemes["mxfp4:gpt-oss"].convert(parts, "mxfp4:gguf")["weight"].shape
        (2, 17)
        """
        target: SchemeRow = to.row if is_a(to, Scheme) else BY_NAME[to]
        wanted = sizes_of(target.name, settings)
        group = self._group(parts, {**settings, **getattr(parts, "settings", {})})
        return transcode(group, target, wanted, partial(cut, group), sys.maxsize)

    def _group(self, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Group:
        found: Group | None = getattr(parts, "group", None)
        if found is not None and not settings and found.scheme == self.name:
            tensors = found.tensors.values()
            if [*map(id, parts.values())] == [*map(id, tensors)]:
                return found  # as `detect` has matched them
        return group_of(self.row, parts, settings)

    def _decoded(self, kind: object) -> Any:
        made = dtype(kind)
        if made.name not in DECODED_DTYPES:
            raise fault(self.name, f"decodes to {', '.join(DECODED_DTYPES)}, not {made}")
        return made


# The project that writes such weights, what decodes them, whether they can be encoded or converted.
_COLUMNS: dict[str, Callable[[Scheme], str]] = {
    "project": lambda scheme: scheme.project,
    "decode": lambda scheme: f"library {scheme.library}" if scheme.library else "kernel",
    "encode": lambda scheme: "yes" if scheme.encodes else "-",
    "convert": lambda scheme: "yes" if scheme.converts else "-",
}


class Schemes(NamedRows[Scheme]):
    """The schemes by name: a read-only mapping.

    >>> schemes["fp8:block"]
    shapejit.schemes['fp8:block']
    """

    def __init__(self) -> None:
        super().__init__("scheme", map(Scheme, ROWS), _COLUMNS)

    detect = staticmethod(detect)


schemes = Schemes()
