"""Weights -> the parts of a scheme, by the rule of one of its forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import asarray
from ..dtypes.table import dtype
from ..errors import DTypeError, shape_text
from ..operations.casts import cast
from ..operations.scaling import flag
from . import sizes
from .content import blocks_of, code_bits
from .forms import Form
from .groups import Group, fault
from .matching import sizes_of
from .parts import Parts
from .rules import Wanted, encoded
from .writing import written


def encode(scheme: str, forms: tuple[Form, ...], x: Any, settings: Mapping[str, Any]) -> Parts:
    """See `Scheme.encode`."""
    given = dict(settings)
    symmetric, codes = flag(given.pop("symmetric", True)), given.pop("dtype", None)
    scale, amax = given.pop("scale_dtype", None), given.pop("amax", None)
    known = sizes_of(scheme, given)
    form = _form(scheme, forms, codes, known)
    rows = _rows(scheme, form, x)
    whole = {**form.usual, **form.chosen, **known, **_axes(form, rows)}
    group = Group(scheme, form, {}, whole, rows.shape[: rows.ndim - len(_axes(form, rows))])
    blocks = blocks_of(form, whole, rows.shape[len(group.batch) :])
    wanted = Wanted(
        code_bits(group, form.codes),
        group.values,
        symmetric,
        _scale_kind(scheme, form, scale),
        None if amax is None else np.float32(amax),
    )
    assert form.rule is not None
    content = encoded(rows, blocks, form.rule, wanted)
    if form.result == "n":
        content = replace(content, result=asarray(x).shape)
    return written(scheme, (form,), content, whole)


def _form(scheme: str, forms: tuple[Form, ...], codes: object, known: Mapping[str, int]) -> Form:
    """The first form with a rule, or with codes of this dtype and blocks of these sizes."""
    name = None if codes is None else dtype(codes).name
    fit = [form for form in forms if form.rule is not None]
    if not fit:
        raise fault(scheme, "is only decoded")
    fit = [form for form in fit if name in (None, form.codes.dtype, *_own_dtypes(form))]
    if "g" in known and len(fit) > 1:
        fit = [f for f in fit if sizes.block(f.scales[0].dims.split()[-1], known) == known["g"]]
    if not fit:
        raise fault(scheme, f"has no such codes: dtype={codes!r}, {dict(known)}")
    return fit[0]


def _own_dtypes(form: Form) -> list[str]:
    """The dtypes of codes that are elements of their part."""
    if form.codes.dtype:
        return []
    return form.part(form.codes.part).kinds


def _rows(scheme: str, form: Form, x: Any) -> NDArray[np.float32]:
    """A weight as float32, (out, in) last or flat, padded as the form wants it."""
    weight = asarray(x)
    if weight.dtype.kind != "float":
        raise DTypeError(f"{scheme}: a weight has a float dtype, not {weight.dtype}")
    made = np.asarray(cast(weight, "float32").numpy())
    if form.result == "n":
        return made.reshape(-1)
    if made.ndim < 2:
        raise fault(scheme, f"stores weights of 2 dims or more, not {shape_text(weight.shape)}")
    if not np.isfinite(made).all():
        raise fault(scheme, "stores no infinities and NaNs")
    made = made.swapaxes(-1, -2) if form.result == "K N" else made
    pads = [(0, 0)] * (made.ndim - 2) + [(0, -n % form.multiple) for n in made.shape[-2:]]
    return np.pad(made, pads) if form.multiple > 1 else np.ascontiguousarray(made)


def _axes(form: Form, rows: NDArray[np.float32]) -> dict[str, int]:
    return dict(zip(form.axes, rows.shape[-len(form.axes) :], strict=True))


def _scale_kind(scheme: str, form: Form, given: object) -> str:
    """The dtype of scales: the form's own, the one that is asked for, or the first of several."""
    first = form.scales[0]
    kinds = [first.dtype] if first.dtype else form.part(first.part).kinds
    if given is None:
        return kinds[0]
    name = dtype(given).name
    if name not in kinds:
        raise fault(scheme, f"has scales of {' or '.join(kinds)}, not {name}")
    return name
