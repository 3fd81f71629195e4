"""Weights encoded by a kernel: scales and codes in one pass over them, see `kernels.encodes`.

NumPy encodes the rest: rules without a kernel's, codes that are not in the order of the weight's
rows, numbers that are not finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import dtype
from ..engine import outputs
from ..engine.addresses import bit_address_of
from ..engine.converting import number_of
from ..engine.patience import Kind, kind_named
from ..kernels.encodings import FIXED, FLOAT32, LARGEST, SAFE, Encoding, ScaleRule
from ..kernels.numbers import Number
from ..planning import thresholds
from ..planning.encode_plans import EncodePlan, encode_plan, plain_plan, scale_units
from ..runtime.kernel_names import Code, Name
from ..runtime.launches import SHARE, Launch, address_of, launch_of, run_launch
from ..shapes.layout import Layout
from . import rules
from .forms import Numbers
from .groups import Group
from .parts import Parts
from .rules import Wanted
from .writing import put, takes_all

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Encoder:
    """An encoder of weights of one shape, (out, in) last, into the parts of a Group, by one plan.

    New parts are copies of `parts`, unless codes and scales fill them. A weight counts as `weights`
    weights of the plan. Scales that have `counts` are first written to an array of this shape, and
    from there to their part.
    """

    group: Group
    parts: Mapping[str, NDArray[Any]]
    filled: AbstractSet[str]
    wanted: Wanted
    plan: EncodePlan
    weights: int
    counts: tuple[int, ...] | None

    @property
    def kind(self) -> Kind:
        """Its kind of work, for `patience`."""
        return kind_named("encode", self.plan, self._tops)

    @cached_property
    def names(self) -> tuple[Name, ...]:
        """The names of the kernels that it needs."""
        plans = filter(None, (self.plan, self._tops))
        return tuple(dict.fromkeys(name for plan in plans for name in _launch(plan).names))

    @cached_property
    def _tops(self) -> EncodePlan | None:
        """The launch that finds the largest magnitude of each weight, if that comes first."""
        unknown = self.group.form.rule.factor and self.wanted.amax is None
        plan, made = self.plan, self.plan.encoding
        if not unknown and made.rule.name != FIXED:
            return None
        only = Encoding(
            made.source, FLOAT32, FLOAT32, ScaleRule(LARGEST), 0, scale_step=FLOAT32.nbytes
        )
        return plain_plan(only, plan.rows * plan.columns)

    def run(self, weight: Tensor, amax: np.float32 | None) -> Parts | None:
        """Encode a weight; None if it has numbers that NumPy must encode."""
        form, plan = self.group.form, self.plan
        x = (weight.mT if form.result == "K N" else weight).ascontiguous()
        arrays = {key: _new(like, key in self.filled) for key, like in self.parts.items()}
        group = replace(self.group, tensors={key: asarray(each) for key, each in arrays.items()})
        scales, source = arrays[form.scales[0].part], bit_address_of(x)[0] // 8
        if self.counts is not None:
            scales = outputs.new_array(dtype(self.wanted.scale).codes, self.counts)[0]
        factor = self._factor(group, source, amax)
        codes = address_of(arrays[form.codes.part]) + plan.first
        begins = source, codes, address_of(scales) + plan.scale_first
        if factor is None or not _run(plan, begins, factor):
            return None
        if self.counts is not None:
            put(group, form.scales[0], scales)
        return Parts(group.tensors, group.settings)

    def _factor(self, group: Group, source: int, amax: np.float32 | None) -> Floats | None:
        """The factor of each weight, which is stored; None if NumPy has to compute it."""
        plan, rule = self._tops, group.form.rule
        if plan is None and rule.factor is None:
            return np.ones(self.weights, np.float32)
        tops = np.empty((self.weights, plan.boxes if plan else 1), np.float32)
        if plan is None:
            tops.fill(amax)
        elif not _run(plan, (source, 0, address_of(tops)), np.ones(self.weights, np.float32)):
            return None
        most = tops.max(axis=1)
        with np.errstate(all="ignore"):
            if rule.factor is not None:
                factor = np.asarray(rule.factor(most))
                assert group.form.factor is not None
                put(group, group.form.factor, factor.reshape(group.batch))
                return factor
            made = rule.by_numpy(rules.Blocks(most[:, None], (1, 1)), self.wanted)
        put(group, group.form.scales[0], made.scale)
        by = np.ascontiguousarray(made.scale.astype(np.float32).reshape(-1))
        safe = (by >= SAFE[0]) & (by <= SAFE[1])
        return by if safe.all() else None


def encoder(group: Group, x: Tensor, wanted: Wanted) -> Encoder | None:
    """The Encoder of weights like `x`, (out, in) last, into laid-out parts, if there is one."""
    rule, (rows, columns), batch = group.form.rule, x.shape[-2:], prod(group.batch)
    (tall, wide), codes = group.blocks, _layout(group, group.form.codes)
    if codes is None:
        return None
    made, counts = _encoding(group, x, wanted, rule.for_kernels(wanted)), None
    fixed = (tall, wide) == (rows, columns) and rows > 1 and rule.of_largest
    weights = batch if fixed or rule.factor or rows % tall else 1
    total = x.size // weights
    if fixed:
        plan = plain_plan(made._replace(rule=ScaleRule(FIXED)), total, codes)
    else:
        scales = _layout(group, group.form.scales[0])
        if scales is None or not scale_units(scales):
            counts = (*group.batch, -(-rows // tall), -(-columns // wide))
            scales = Layout.row_major(counts, dtype(wanted.scale).bits)
        plan = encode_plan(made, (total // columns, columns), (tall, wide), codes, scales)
    if plan is None:
        return None
    filled = {key for key, t in group.tensors.items() if takes_all(group, key, t.nbytes)}
    parts = {key: _template(t, key in filled) for key, t in group.tensors.items()}
    return Encoder(replace(group, tensors={}), parts, filled, wanted, plan, weights, counts)


def _template(t: Tensor, filled: bool) -> NDArray[Any]:
    """The initial content of a part; one number if it is all zeros, or never read."""
    if filled or not np.frombuffer(t.tobytes(), np.uint8).any():
        return np.broadcast_to(np.zeros((), t.dtype.codes), t.shape)
    return t.numpy()


def _new(template: NDArray[Any], filled: bool) -> NDArray[Any]:
    """New memory for a part."""
    made: NDArray[Any] = outputs.new_array(template.dtype, template.shape)[0]
    if not filled:
        made[...] = template
    return made


def _layout(group: Group, numbers: Numbers) -> Layout | None:
    """The Layout of numbers, in the order of the weight's rows; None if in several planes."""
    planes = group.planes(numbers)
    if planes is None or len(planes) > 1:
        return None
    return planes[0][0].permuted(f"*{group.form.axes}").tensor.layout


def _encoding(group: Group, x: Tensor, wanted: Wanted, rule: ScaleRule) -> Encoding:
    """The Encoding of each block; its size and the layout of codes are in the plan."""
    bits = wanted.bits
    target = Number("uint", bits) if wanted.values == "integer" else number_of(dtype(wanted.values))
    scale = number_of(dtype(wanted.scale))
    return Encoding(number_of(x.dtype), target, scale, rule, 0, bias=group.code_bias % (1 << bits))


def _launch(plan: EncodePlan) -> Launch:
    """The kernel that encodes by a plan."""
    arguments = Code("encode_generator", plan.encoding), plan.sizes
    return launch_of("encodes.encode_boxes", arguments, plan.stage, staged=True)


def _run(plan: EncodePlan, begins: Sequence[int], factor: Floats) -> bool:
    """Encode weights between addresses; return whether all numbers are finite."""
    count, units = factor.size, plan.boxes * plan.bands
    places, rare = np.zeros((5, count), np.int64), np.zeros(count, np.int64)
    steps = (*plan.steps, factor.itemsize, rare.itemsize)
    first = (*begins, address_of(factor), address_of(rare))
    places[:] = np.array(first)[:, None] + np.outer(steps, np.arange(count))
    nbytes = count * plan.steps[0]
    shares = nbytes // SHARE if nbytes >= thresholds.PARALLEL_FROM else 1
    run_launch(_launch(plan), False, places, units, units * count, shares, 0)
    return not rare.any()
