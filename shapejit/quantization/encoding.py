"""Weights encoded as the parts of a scheme, by the rule of one of its forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import dtype
from ..engine.patience import by_numpy, unready
from ..engine.routes import FOUND
from ..errors import DTypeError, shape_text
from ..operations.casts import cast
from ..operations.scaling import flag
from ..runtime.kernels import compiled
from . import sizes
from .content import Content, blocks_of, code_bits
from .encode_runs import Encoder, encoder
from .forms import Form
from .groups import Group, fault
from .matching import sizes_of
from .parts import Parts
from .rules import Wanted, encoded
from .writing import laid_out

SOURCES = ("bfloat16", "float16", "float32")  # of a kernel


def encode(scheme: str, forms: tuple[Form, ...], x: Any, settings: Mapping[str, Any]) -> Parts:
    """See `Scheme.encode`."""
    given, weight = dict(settings), asarray(x)
    amax = given.pop("amax", None)
    amax = None if amax is None else np.float32(amax)
    key = encode, scheme, weight.shape, weight.dtype.name, amax is None, repr(given)
    work: Encoder | None = FOUND.get(key)
    if work is None:
        work = _by_kernel(*_meant(scheme, forms, weight, given, amax))
        if work is not None:
            FOUND.put(key, work)
    kinds = () if work is None else unready(work.kind, lambda: work.names)
    made = None if work is None or kinds else work.run(weight, amax)
    if made is not None:
        return made
    with by_numpy(*kinds):
        return _by_numpy(*_meant(scheme, forms, weight, given, amax))


def _meant(
    scheme: str,
    forms: tuple[Form, ...],
    weight: Tensor,
    settings: Mapping[str, Any],
    amax: np.float32 | None,
) -> tuple[Group, Tensor, Wanted]:
    """The empty parts of a weight, the weight, and the codes that are wanted."""
    given = dict(settings)
    symmetric, codes = flag(given.pop("symmetric", True)), given.pop("dtype", None)
    scale = given.pop("scale_dtype", None)
    known = sizes_of(scheme, given)
    form = _form(scheme, forms, codes, known)
    shape = _shape(scheme, form, weight)
    axes = dict(zip(form.axes, shape[-len(form.axes) :], strict=True))
    whole, batch = {**form.usual, **form.chosen, **known, **axes}, shape[: len(shape) - len(axes)]
    group = Group(scheme, form, {}, whole, batch)
    kind = _scale_kind(scheme, form, scale)
    wanted = Wanted(code_bits(group, form.codes), group.values, symmetric, kind, amax)
    return group, weight, wanted


def _by_kernel(group: Group, weight: Tensor, wanted: Wanted) -> Encoder | None:
    """The Encoder of weights of this shape and dtype; None if there is none."""
    form = group.form
    shape = group.sizes(" ".join(form.axes))
    zeros = form.zeros is not None and not form.part(form.zeros.part).optional
    if form.rule is None or form.rule.by_kernel is None or not wanted.symmetric or zeros:
        return None
    t = weight.mT if form.result == "K N" else weight
    if not compiled() or t.shape != shape or not t.size or t.dtype.name not in SOURCES:
        return None
    scale = np.zeros((), dtype(wanted.scale).codes)
    factor = np.ones(group.batch, np.float32) if form.rule.factor else None
    step = form.scales[1].step if len(form.scales) > 1 else "*"
    blocks = blocks_of(form, group.known, shape[len(group.batch) :])
    values, middle = wanted.values, 1 << (wanted.bits - 1)
    content = Content(
        shape, None, None, wanted.bits, values, blocks, scale, factor, step, middle, None
    )
    made = laid_out(group.scheme, form, content, group.known)
    return encoder(made, t, form.rule, wanted)


def _by_numpy(group: Group, weight: Tensor, wanted: Wanted) -> Parts:
    form = group.form
    assert form.rule is not None
    rows = _rows(group.scheme, form, weight)
    blocks = blocks_of(form, group.known, rows.shape[len(group.batch) :])
    content = encoded(rows, blocks, form.rule, wanted)
    if form.result == "n":
        content = replace(content, result=weight.shape)
    made = laid_out(group.scheme, form, content, group.known)
    return Parts(made.tensors, made.settings)


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
    """The dtypes of codes that are stored unpacked, as elements of their part."""
    if form.codes.dtype:
        return []
    return form.part(form.codes.part).kinds


def _shape(scheme: str, form: Form, weight: Tensor) -> tuple[int, ...]:
    """The shape of a weight, (out, in) last or flat, padded as the form requires."""
    if weight.dtype.kind != "float":
        raise DTypeError(f"{scheme}: a weight has a float dtype, not {weight.dtype}")
    if form.result == "n":
        return (weight.size,)
    if weight.ndim < 2:
        raise fault(scheme, f"stores weights of 2 dims or more, not {shape_text(weight.shape)}")
    whole = not form.part(form.scales[0].part).dims  # one scale for all
    if not weight.shape[-1] or (whole and not weight.size):
        raise fault(scheme, f"has no scale for a weight of {shape_text(weight.shape)}")
    *batch, rows, columns = weight.shape
    if form.result == "K N":
        rows, columns = columns, rows
    return (*batch, *(-(-n // form.multiple) * form.multiple for n in (rows, columns)))


def _rows(scheme: str, form: Form, weight: Tensor) -> NDArray[np.float32]:
    """A weight as float32, (out, in) last or flat, padded as the form requires."""
    made = np.asarray(cast(weight, "float32").numpy())
    if not np.isfinite(made).all():
        raise fault(scheme, "stores no infinities and NaNs")
    if form.result == "n":
        return made.reshape(-1)
    made = made.swapaxes(-1, -2) if form.result == "K N" else made
    pads = [(0, 0)] * (made.ndim - 2) + [(0, -n % form.multiple) for n in made.shape[-2:]]
    return np.pad(made, pads) if form.multiple > 1 else np.ascontiguousarray(made)


def _scale_kind(scheme: str, form: Form, given: object) -> str:
    """The dtype of scales: the requested one, or the form's first."""
    first = form.scales[0]
    kinds = [first.dtype] if first.dtype else form.part(first.part).kinds
    if given is None:
        return kinds[0]
    name = dtype(given).name
    if name not in kinds:
        raise fault(scheme, f"has scales of {' or '.join(kinds)}, not {name}")
    return name
