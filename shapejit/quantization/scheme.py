"""Scheme: what the public table maps a name to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..arrays.tensor import Tensor
from ..dtypes.table import dtype
from ..errors import FormatError
from ..runtime.ndarrays import is_a
from . import decoding
from .content import content_of
from .encoding import encode
from .forms import Row
from .groups import Group, fault
from .matching import group_of, sizes_of
from .writing import is_written, written

DECODED = ("bfloat16", "float16", "float32")
ROUNDINGS = ("once", "reference")


class Scheme:
    """One way in which checkpoints store quantised weights: a row of `shapejit.schemes`.

    >>> import shapejit as sj
    >>> sj.schemes["awq"]
    shapejit.schemes['awq']
    """

    def __init__(self, row: Row, known: Callable[[str], Scheme]) -> None:
        self.row, self._known = row, known

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
        """Where the facts stand: the reference's file and function.

        >>> import shapejit as sj
        >>> sj.schemes["awq"].source
        'GPTQModel, quantization/awq/utils/packing_utils.py, dequantize_gemm'
        """
        return self.row.source

    @property
    def project(self) -> str:
        """The project whose reference that is, which writes such weights.

        >>> import shapejit as sj
        >>> sj.schemes["awq"].project
        'GPTQModel'
        """
        return self.row.source.partition(",")[0]

    @property
    def library(self) -> str:
        """The package that decodes it; "" where kernels do.

        >>> import shapejit as sj
        >>> sj.schemes["awq"].library, sj.schemes["gguf:iq4_nl"].library
        ('', 'gguf')
        """
        read = any(form.codes.read is not None for form in self.row.forms)
        return "gguf" if read and self.row.file_type is not None else ""

    @property
    def encodes(self) -> bool:
        """Whether `encode` makes such weights.

        >>> import shapejit as sj
        >>> sj.schemes["awq"].encodes, sj.schemes["gguf:iq4_nl"].encodes
        (True, False)
        """
        return any(form.rule is not None for form in self.row.forms)

    @property
    def converts(self) -> bool:
        """Whether `convert` takes weights of other schemes to it.

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
        """The weight that the tensors `parts` stand for, as bfloat16, float16 or float32.

        `parts` maps the last components of names in a checkpoint to Tensors or ndarrays;
        `settings` (`bits`, `group_size` in elements, ...) are only needed where shapes leave
        them open. The arithmetic is float32, its result rounded once, to `dtype`; with
        `rounding="reference"` intermediate results are rounded where those of `source`
        are. `out`, a Tensor of the result's shape and dtype, C-contiguous, is filled and
        returned. Raises FormatError for parts that are missing or do not fit and for other
        dtypes, DTypeError and ReshapeError for an `out` that is not fit.

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
        """The parts that store a weight: each number by the nearest code of its block.

        `x`, an ndarray or Tensor of floats, has the shape that `decode` gives, after any
        dims of stacked experts. `settings` are those of `decode`, and `symmetric` (True;
        integer codes of a range around 0), `scale_dtype` (the dtype of scales where the
        scheme allows several), `dtype` (that of the codes, where the scheme has several) and
        `amax` (the largest magnitude of all weights that share the global scale of NVFP4).
        Scales follow the rule of the reference; nothing is calibrated. Raises FormatError
        for shapes and settings that the scheme cannot store, and for schemes that are
        only decoded, DTypeError for what are no floats.

        >>> import numpy as np, shapejit as sj
        >>> parts = sj.schemes["gguf:q8_0"].encode(np.ones((2, 32), np.float32))
        >>> parts["weight"].shape
        (2, 34)
        """
        return encode(self.name, self.row.forms, x, settings)

    def convert(
        self, parts: Mapping[str, Any], to: str | Scheme, **settings: Any
    ) -> dict[str, Tensor]:
        """The same weight as another scheme stores it: the same codes and scales, exactly.

        `parts` and `settings` are those of `decode`; `to` is a Scheme or its name. Raises
        FormatError, which says what the other scheme cannot hold: another width of codes,
        other blocks, zero points, scales that its dtype would round, act-order;
        UnknownNameError.

        >>> import numpy as np, shapejit as sj
        >>> parts = sj.schemes["mxfp4:gpt-oss"].encode(np.ones((32, 2), np.float32))
        >>> sj.schemes["mxfp4:gpt-oss"].convert(parts, "mxfp4:gguf")["weight"].shape
        (2, 17)
        """
        target = to if is_a(to, Scheme) else self._known(to)
        wanted = sizes_of(target.name, settings)
        group = self._group(parts, {**settings, **getattr(parts, "settings", {})})
        return written(target.name, target.row.forms, content_of(group), wanted)

    def _group(self, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Group:
        return group_of(self.name, self.row.forms, parts, settings)

    def _decoded(self, kind: object) -> Any:
        made = dtype(kind)
        if made.name not in DECODED:
            raise fault(self.name, f"decodes to {', '.join(DECODED)}, not {made}")
        return made
