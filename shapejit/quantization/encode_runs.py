"""Weights encoded by a kernel: scales and codes in one pass over them, see `kernels.encodes`.

NumPy encodes the rest: rules without a kernel's, codes that are not in the order of the weight's
rows, numbers that are not finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import dtype
from ..engine import outputs
from ..engine.addresses import bit_address_of
from ..engine.converting import number_of
from ..engine.patience import Kind, kind_named
from ..kernels.encodings import FIXED, FLOAT32, LARGEST, SAFE, Encoding, Rule
from ..kernels.numbers import Number
from ..planning import thresholds
from ..planning.encode_plans import EncodePlan, encode_plan, plain_plan, scale_units
from ..runtime.kernel_names import Code, Name
from ..runtime.launches import SHARE, Launch, address_of, launch_of, run_launch
from ..shapes.layout import Layout
from . import rules
from .groups import Group
from .parts import Parts
from .rules import Wanted
from .writing import put, takes_all

Floats = NDArray[np.float32]


class Fresh(NamedTuple):
    """A new part: its dtype and shape, and its bytes before codes and scales are written; None if
    these fill it.
    """

    kind: Any
    shape: tuple[int, ...]
    before: NDArray[Any] | None

    def made(self) -> NDArray[Any]:
        """New memory for the part."""
        made: NDArray[Any] = outputs.new_array(self.kind, self.shape)[0]
        if self.before is not None:
            made[...] = self.before
        return made


@dataclass(frozen=True, eq=False)
class Encoder:
    """An encoder of weights of one shape, (out, in) last, into the parts of a Group, by one plan.

    A weight counts as `weights` weights of the plan. Codes begin at a byte of a part. So do scales,
    unless they are first written to an array `apart`, and from there to their part.
    """

    group: Group
    parts: Mapping[str, Fresh]
    rule: rules.Rule
    wanted: Wanted
    plan: EncodePlan
    total: int
    weights: int
    codes: tuple[str, int]
    scales: tuple[str, int]
    apart: Fresh | None

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
        """The launch that finds the largest magnitude of each weight, if that is needed first."""
        unknown = self.rule.factor and self.wanted.amax is None
        made = self.plan.encoding
        if not unknown and made.rule.name != FIXED:
            return None
        only = Encoding(made.source, FLOAT32, FLOAT32, Rule(LARGEST), 0, scale_step=FLOAT32.nbytes)
        return plain_plan(only, self.total)

    def run(self, weight: Tensor, amax: np.float32 | None) -> Parts | None:
        """Encode a weight; None if it has numbers that NumPy has to encode."""
        x = (weight.mT if self.group.form.result == "K N" else weight).ascontiguous()
        arrays = {key: part.made() for key, part in self.parts.items()}
        group = replace(self.group, tensors={key: asarray(each) for key, each in arrays.items()})
        scales = None if self.apart is None else self.apart.made()
        source = bit_address_of(x)[0] // 8
        factor = self._factor(group, source, amax)
        codes, place = (address_of(arrays[part]) + at for part, at in (self.codes, self.scales))
        place = place if scales is None else address_of(scales)
        if factor is None or not _run(self.plan, (source, codes, place), factor):
            return None
        if scales is not None:
            put(group, group.form.scales[0], scales)
        return Parts(group.tensors, group.settings)

    def _factor(self, group: Group, source: int, amax: np.float32 | None) -> Floats | None:
        """The factor of each weight, which is stored; None if NumPy has to compute it."""
        plan = self._tops
        if plan is None and self.rule.factor is None:
            return np.ones(self.weights, np.float32)
        if plan is None:
            tops = np.full((self.weights, 1), amax, np.float32)
        else:
            tops = np.empty((self.weights, plan.boxes), np.float32)
            if not _run(plan, (source, 0, address_of(tops)), np.ones(self.weights, np.float32)):
                return None
        most = tops.max(axis=1)
        with np.errstate(all="ignore"):
            if self.rule.factor is not None:
                factor = np.asarray(self.rule.factor(most))
                assert group.form.factor is not None
                put(group, group.form.factor, factor.reshape(group.batch))
                return factor
            made = self.rule.by_numpy(rules.Blocks(most[:, None], (1, 1)), self.wanted)
        put(group, group.form.scales[0], made.scale)
        by = np.ascontiguousarray(made.scale.astype(np.float32).reshape(-1))
        safe = (by >= SAFE[0]) & (by <= SAFE[1])
        return by if safe.all() else None


def encoder(group: Group, x: Tensor, rule: rules.Rule, wanted: Wanted) -> Encoder | None:
    """The Encoder of weights like `x`, (out, in) last, into parts that are laid out; None if there
    is none.
    """
    form, (rows, columns), batch = group.form, x.shape[-2:], prod(group.batch)
    (tall, wide), planes = group.blocks, group.planes(form.codes)
    if planes is None or len(planes) > 1:
        return None
    codes, scales = planes[0][0].permuted(f"*{form.axes}").tensor, _scales(group)
    made = _encoding(group, x, wanted, rule.for_kernels(wanted))
    fixed = (tall, wide) == (rows, columns) and rows > 1 and rule.of_largest
    weights = batch if fixed or rule.factor or rows % tall else 1
    total, apart = x.size // weights, None
    if fixed:
        plan = plain_plan(made._replace(rule=Rule(FIXED)), total, codes.layout)
    else:
        counts = (*group.batch, -(-rows // tall), -(-columns // wide))
        if scales is None:
            apart = Fresh(dtype(wanted.scale).codes, counts, None)
            lie = Layout.row_major(counts, 8 * apart.kind.itemsize)
        else:
            lie = scales.layout
        plan = encode_plan(made, (total // columns, columns), (tall, wide), codes.layout, lie)
    if plan is None:
        return None
    begin = _begin(group, form.codes.part, codes, plan.first)
    second = _begin(group, form.scales[0].part, scales, plan.scale_first)
    parts = {key: _fresh(group, key, t.numpy()) for key, t in group.tensors.items()}
    group = replace(group, tensors={})
    return Encoder(group, parts, rule, wanted, plan, total, weights, begin, second, apart)


def _begin(group: Group, key: str, numbers: Tensor | None, first: int) -> tuple[str, int]:
    """A part, and the byte at which its numbers begin; `first` is added to it."""
    if numbers is None:
        return key, 0
    return key, address_of(numbers.buffer) - address_of(group.tensors[key].numpy()) + first


def _fresh(group: Group, key: str, x: NDArray[Any]) -> Fresh:
    """A Fresh part like one that is laid out; zeros are stored as one."""
    if takes_all(group, key, x.nbytes):
        return Fresh(x.dtype, x.shape, None)
    some = np.frombuffer(x.tobytes(), np.uint8).any()
    return Fresh(x.dtype, x.shape, x.copy() if some else np.zeros((), x.dtype))


def _encoding(group: Group, x: Tensor, wanted: Wanted, rule: Rule) -> Encoding:
    """The Encoding of each block; its size and the layout of codes are in the plan."""
    bits = wanted.bits
    target = Number("uint", bits) if wanted.values == "integer" else number_of(dtype(wanted.values))
    scale = number_of(dtype(wanted.scale))
    return Encoding(number_of(x.dtype), target, scale, rule, 0, bias=group.code_bias % (1 << bits))


def _scales(group: Group) -> Tensor | None:
    """The stored scales in the order of the weight's rows; None if a kernel cannot write them."""
    planes = group.planes(group.form.scales[0])
    if planes is None or len(planes) > 1:
        return None
    t = planes[0][0].permuted(f"*{group.form.axes}").tensor
    return t if scale_units(t.layout) else None


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
