"""Weights encoded as the parts of a scheme, by the rule of one of its forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import dtype
from ..engine.patience import by_numpy, unready
from ..engine.routes import FOUND
from ..errors import DTypeError, shape_text
from ..operations.casts import cast
from ..operations.scaling import flag
from ..runtime.kernels import compiled
from . import sizes
from .content import Content
from .encode_runs import Encoder, encoder
from .forms import Form, SchemeRow
from .groups import Group, fault
from .matching import sizes_of
from .parts import Parts
from .rules import Wanted, encoded
from .writing import laid_out

SOURCES = ("bfloat16", "float16", "float32")  # of a kernel


def encode(row: SchemeRow, x: Any, settings: Mapping[str, Any]) -> Parts:
    """See `Scheme.encode`."""
    given, weight = dict(settings), asarray(x)
    amax = given.pop("amax", None)
    amax = None if amax is None else np.float32(amax)
    key = encode, row.name, weight.shape, weight.dtype.name, amax is None, repr(given)
    work: Encoder | None = FOUND.get(key)
    if work is None:
        work = _encoder(*_meant(row, weight, given, amax))
        if work is not None:
            FOUND.put(key, work)
    kinds = () if work is None else unready(work.kind, lambda: work.names)
    made = None if work is None or kinds else work.run(weight, amax)
    if made is not None:
        return made
    with by_numpy(*kinds):
        return _by_numpy(*_meant(row, weight, given, amax))


def _meant(
    row: SchemeRow, weight: Tensor, settings: Mapping[str, Any], amax: np.float32 | None
) -> tuple[Group, Tensor, Wanted]:
    """A weight without parts, its numbers, (out, in) last or flat, and the requested codes."""
    given = dict(settings)
    symmetric, codes = flag(given.pop("symmetric", True)), given.pop("dtype", None)
    scale = given.pop("scale_dtype", None)
    known = sizes_of(row.name, given)
    form = _form(row, codes, known)
    t, rank = _turned(row, form, weight), len(form.axes)
    whole = (-(-n // form.multiple) * form.multiple for n in t.shape[-rank:])
    known = {**form.usual, **form.chosen, **known, **dict(zip(form.axes, whole, strict=True))}
    group = Group(
        row.name, form, {}, known, t.shape[:-rank], weight.shape if form.result == "n" else None
    )
    group = replace(group, known={**known, "b": group.width(form.codes)})
    group.check_width()
    kind = _scale_kind(row, form, scale)
    return group, t, Wanted(group.width(form.codes), group.values, symmetric, kind, amax)


def _encoder(group: Group, t: Tensor, wanted: Wanted) -> Encoder | None:
    """The Encoder of weights of this shape and dtype; None if there is none."""
    form, shape = group.form, group.stored_shape
    zeros = form.zeros is not None and not form.part(form.zeros.part).optional
    if not form.rule.name or not wanted.symmetric or zeros:
        return None
    if not compiled() or t.shape != shape or not t.size or t.dtype.name not in SOURCES:
        return None
    scale = np.zeros((), dtype(wanted.scale).codes)
    factor = np.ones(group.batch, np.float32) if form.rule.factor else None
    content = Content(group, None, scale, factor, 1 << (wanted.bits - 1))
    return encoder(laid_out(group, content), t, wanted)


def _by_numpy(group: Group, t: Tensor, wanted: Wanted) -> Parts:
    x = np.ascontiguousarray(cast(t, "float32").numpy())
    if not np.isfinite(x).all():
        raise fault(group.scheme, "stores no infinities and NaNs")
    shape = group.stored_shape
    if x.shape != shape:
        x = np.pad(x, [(0, whole - n) for n, whole in zip(x.shape, shape, strict=True)])
    made = laid_out(group, encoded(group, x, wanted))
    return Parts(made.tensors, made.settings)


def _form(row: SchemeRow, codes: object, known: Mapping[str, int]) -> Form:
    """The first form with a rule, or with codes of this dtype and blocks of these sizes."""
    name = None if codes is None else dtype(codes).name
    fit = [form for form in row.forms if form.rule is not None]
    if not fit:
        raise fault(row.name, "can only be decoded")
    fit = [form for form in fit if name in (None, *form.kinds(form.codes))]
    if "g" in known and len(fit) > 1:
        fit = [f for f in fit if sizes.block(f.scales[0].dims.split()[-1], known) == known["g"]]
    if not fit:
        raise fault(row.name, f"has no such codes: dtype={codes!r}, {dict(known)}")
    return fit[0]


def _turned(row: SchemeRow, form: Form, weight: Tensor) -> Tensor:
    """A weight with (out, in) last, or flat."""
    if weight.dtype.kind != "float":
        raise DTypeError(f"{row.name}: a weight has a float dtype, not {weight.dtype}")
    if form.result == "n":
        return weight.reshape((weight.size,))
    if weight.ndim < 2:
        raise fault(row.name, f"stores weights of 2 dims or more, not {shape_text(weight.shape)}")
    whole = not form.part(form.scales[0].part).dims  # one scale for all
    if not weight.shape[-1] or (whole and not weight.size):
        raise fault(row.name, f"has no scale for a weight of {shape_text(weight.shape)}")
    return weight.mT if form.result == "K N" else weight


def _scale_kind(row: SchemeRow, form: Form, given: object) -> str:
    """The dtype of scales: the requested one, or the form's first."""
    kinds = form.kinds(form.scales[0])
    name = kinds[0] if given is None else dtype(given).name
    if name not in kinds:
        raise fault(row.name, f"has scales of {' or '.join(kinds)}, not {name}")
    return name
