"""detect: the quantised weights of a checkpoint, and the tensors of each, without guesses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ..arrays.tensor import Tensor, asarray
from ..errors import DTypeError, ShapeJitError, quoted
from ..packings.rows import formats
from ..runtime.ndarrays import is_mapping
from .config_keys import unknown_keys, unknown_values
from .configuration import Declared, declared
from .contradictions import contradictions
from .forms import Form, Part, Row
from .groups import Group, any_of
from .matching import fitted, group_of, sizes_of
from .naming import beginnings, beside, weight_name
from .parts import Found, Parts, WeightNode
from .rows import ROWS

# Names of parts that always belong to a quantised weight. modelopt's `pre_quant_scale` multiplies
# the inputs of a weight, so its stored weight differs from the original one.
_TELLING = {"pre_quant_scale"} | {
    name
    for row in ROWS
    for form in row.forms
    for part in form.parts
    if part.key not in ("", "weight", "scale", "input_scale", "bias")
    for name in part.name.split("|")
}


class _Names(NamedTuple):
    """How a form is recognised: its codes, the ends of their names, the parts that they need."""

    form: Form
    codes: Part
    ends: tuple[str, ...]
    needed: list[Part]


def _names(row: Row, form: Form) -> _Names:
    codes = form.part(form.codes.part)
    ends = tuple(
        separator + n for n in codes.name.split("|") for separator in row.separators if codes.name
    )
    needed = [part for part in form.parts if part is not codes and not part.optional]
    return _Names(form, codes, ends, needed)


_NAMES = [[_names(row, form) for form in row.forms] for row in ROWS]
_METHODS = {word for row in ROWS for word in row.words}
_WEIGHTS = ("int8", "uint8", "int32", "uint32")
_CODES = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")


class Unclear(NamedTuple):
    """Tensors that look quantised but fit several `schemes`, or none, and the `reason`."""

    names: tuple[str, ...]
    schemes: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"{', '.join(self.names)}: {self.reason}"


class Detected(list[Found]):
    """The weights of a checkpoint; `unclear` are tensors without one scheme, `warnings` texts.

    >>> Detected().unclear, Detected().warnings
    ([], [])
    """

    def __init__(self) -> None:
        super().__init__()
        self.unclear: list[Unclear] = []
        self.warnings: list[str] = []


class _Fit(NamedTuple):
    """A scheme that a group of names fits, or the reason why it does not."""

    row: Row
    form: Form
    names: Mapping[str, str]  # of parts, by their keys in `Parts`; the codes come first
    group: Group | None
    settings: Mapping[str, Any]
    reason: str
    of_node: bool = False


def detect(tensors: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> Detected:
    """The quantised weights among the tensors of a checkpoint, by names, dtypes, shapes, config.

    `tensors` maps names to Tensors, ndarrays or tensors of gguf.GGUFReader. `config` is the content
    of the model's JSON config (or of a quantiser's file, or a file's metadata); it may also contain
    the content of quantisers' files, under their names. For an ONNX model, pass the result of
    `sj.load_file`, which knows the nodes of its weights.

    The result is a list of (prefix, scheme, parts) with two attributes: `unclear` lists tensors
    that fit two schemes, or look quantised but fit none; `warnings` lists contradictions. Parts
    include the settings of the config, so that `schemes[scheme].decode(parts)` needs no others.
    Raises DTypeError for arguments that are no mappings.

    >>> import numpy as np, shapejit as sj
    >>> ones = np.ones((4, 1), np.float32)
    >>> codes = sj.cast(np.zeros((4, 8), np.float32), "float8_e4m3fn")
    >>> found = sj.schemes.detect({"fc.weight": codes, "fc.weight_scale": ones, "fc2.qzeros": ones})
    >>> [(prefix, scheme, sorted(parts)) for prefix, scheme, parts in found]
    [('fc', 'fp8:channel', ['weight', 'weight_scale'])]
    >>> print(*found.unclear)
    fc2.qzeros: there are no codes that it belongs to
    """
    for given in (tensors, {} if config is None else config):
        if not is_mapping(given):
            raise DTypeError(f"detect takes mappings, not {type(given).__name__}")
    return detected(tensors, declared(config or {}))


class _Tensors:
    """The tensors of a checkpoint by name, with a cache of those examined last."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given, self.names = given, frozenset(given)
        self.look = lru_cache(maxsize=64)(self._look)

    def _look(self, name: str) -> Tensor:
        """A tensor as far as detection needs it."""
        x = self.given[name]
        made = getattr(x, "outline", None)
        if made is None:  # those of gguf.ReaderTensor are bytes in an attribute
            made = x.data if hasattr(x, "tensor_type") else x
        return asarray(made)


def detected(given: Mapping[str, Any], said: Declared) -> Detected:
    """`detect` with the facts of a config."""
    made, used, tensors = Detected(), set[str](), _Tensors(given)
    doubt = unknown_values(said.config)
    nodes: Sequence[WeightNode] = getattr(given, "weight_nodes", ())
    by_tensor = {name: node for node in nodes for name in node.tensors.values()}
    by_tensor |= {node.codes: node for node in nodes}
    for name in sorted(given):
        node = by_tensor.get(name)
        fits = [] if name in used else list(_fits(name, tensors, said, node))
        fitting = [fit for fit in fits if fit.group is not None]
        right = _preferred(fitting, said)
        if not fits or (node is not None and node.fault and not right):
            continue
        names = tuple(sorted({n for fit in right or fits for n in fit.names.values()}))
        used |= set(names)
        if doubt and any(fit.row.file_type is None for fit in fitting):
            made.unclear.append(Unclear(names, (), doubt))
        elif len(right) != 1 or right[0].group is None:
            made.unclear.append(_unclear(names, right, fits))
        else:
            made.append(_found(right[0], right[0].group, given))
    for node in nodes:
        left = tuple(name for name in node.tensors.values() if name not in used)
        used |= {*left}
        if left:
            made.unclear.append(Unclear(left, (), node.fault))
    for name in given:
        if name not in used and _looks_quantised(name, given[name]):
            made.unclear.append(Unclear((name,), (), _alone(name, given[name])))
    made.warnings = contradictions(made, said)
    if made or made.unclear:
        made.warnings += unknown_keys(said.config)
    return made


def _found(fit: _Fit, group: Group, given: Mapping[str, Any]) -> Found:
    first = next(iter(fit.names))
    prefix = fit.names[first].removesuffix(first).removesuffix(".")
    tensors = {key: group.tensors[part] for part, key in group.keys.items()}
    parts = {key: tensors[key] for key in fit.names}
    weight = weight_name(fit.row, fit.names[group.keys[group.form.codes.part]])
    sources = {part: given[fit.names[key]] for part, key in group.keys.items()}
    if fit.of_node:
        prefix = weight.removesuffix(".weight")
    return Found(
        prefix, fit.row.name, Parts(parts, fit.settings, fit.names, weight, group, sources)
    )


def _fits(name: str, tensors: _Tensors, said: Declared, node: WeightNode | None) -> Iterator[_Fit]:
    """The schemes whose codes `name` may be, and whose other parts exist.

    `node` is the node of a graph with this tensor, if there is one: it takes precedence over names.
    """
    kind, dotted = getattr(tensors.given[name], "tensor_type", None), f".{name}"
    for row, known in zip(ROWS, _NAMES, strict=True):
        if node is not None and row.operator:
            if (row.operator, name, "") == (node.operator, node.codes, node.fault):
                yield _fit_of_node(row, node, tensors)
            continue
        reasons = list[_Fit]()
        for names in known:
            form = names.form
            if row.file_type is not None:
                if kind is not None and kind.name == row.file_type:
                    base, (_, *others) = name.removesuffix("weight"), form.parts
                    found = {p.key: beside(base, p, tensors.names) for p in others}
                    own = {"weight": name, **{key: n for key, n in found.items() if n}}
                    yield _fit(row, form, own, {key: key for key in own}, tensors, said)
                continue
            if kind is not None or (names.codes.name and not dotted.endswith(names.ends)):
                continue
            named = _named(name, names, tensors, row.separators)
            if named is None:
                continue
            made = _fit(row, form, *named, tensors, said)
            if made.group is not None:
                yield made
                break
            reasons.append(made)
        else:
            yield from reasons[:1]


def _named(
    name: str, names: _Names, tensors: _Tensors, separators: str
) -> tuple[dict[str, str], dict[str, str]] | None:
    """The names of all parts that belong to codes of this name, and their keys in `Parts`."""
    form, codes = names.form, names.codes
    if not codes.name and name.rpartition(".")[2] == "weight":
        return None
    known = tensors.names
    for base in beginnings(name, codes, separators):
        if not all(_fills(beside(base, part, known), part, tensors) for part in names.needed):
            continue
        found = {part.key: beside(base, part, known) for part in form.parts}
        found[codes.key] = name
        if not codes.name and tensors.look(name).dtype.name not in codes.kinds:
            continue  # any tensor may have one beside it that is called its scale
        stem, own = base[: base.rfind(".") + 1], {k: full for k, full in found.items() if full}
        return own, {key: full.removeprefix(stem) for key, full in own.items()}
    return None


def _fills(name: str | None, part: Part, tensors: _Tensors) -> bool:
    """Whether a part exists; a single number is no table, as other forms have."""
    return name is not None and (part.dims != "1" or tensors.look(name).ndim < 2)


def _fit_of_node(row: Row, node: WeightNode, tensors: _Tensors) -> _Fit:
    """Whether the tensors fit with the settings of the node."""
    names, settings = node.tensors, node.settings
    try:
        parts = {key: tensors.look(name) for key, name in names.items()}
        group = group_of(row.name, row.forms, parts, settings)
    except ShapeJitError as fault:
        reason = str(fault).removeprefix(f"{row.name}: ")
        return _Fit(row, row.forms[0], names, None, settings, reason)
    return _Fit(row, group.form, names, group, settings, "", of_node=True)


def _fit(
    row: Row, form: Form, named: Mapping[str, str], keys: Mapping[str, str],
    tensors: _Tensors, said: Declared,
) -> _Fit:  # fmt: skip
    """Whether the tensors fit with any of the settings in the config.

    `named` are their names, and `keys` their keys in `Parts`, both by the keys of the form.
    """
    codes = named[form.codes.part]
    base, own = codes.rpartition(".")[0], set(named.values())
    names = {keys[form.codes.part]: codes} | {keys[part]: name for part, name in named.items()}
    stems = {codes.rpartition(separator)[0] + separator for separator in row.separators}
    stems = stems if form.codes.part else {f"{codes}_"}
    telling = (stem + other for stem in stems for other in _TELLING)
    beside = [name for name in telling if name in tensors.names and name not in own]
    if beside and row.file_type is None:
        return _Fit(row, form, names, None, {}, f"has no {', '.join(sorted(beside))}")
    layout, why = _layout(row, said)
    if why:
        return _Fit(row, form, names, None, {}, why)
    reason, found = "", list[_Fit]()
    try:
        parts = {part: tensors.look(name) for part, name in named.items()}
        for settings in ({**each, **layout} for each in _settings_of(row, form, said, base)):
            try:
                group = fitted(row.name, form, parts, keys, sizes_of(row.name, settings))
            except ShapeJitError as fault:
                reason = reason or str(fault).removeprefix(f"{row.name}: ")
            else:
                if form.asks and not any(a in settings or a in group.tensors for a in form.asks):
                    needed = " or ".join(form.asks)
                    return _Fit(row, form, names, None, {}, f"nothing tells {needed}")
                found.append(_Fit(row, form, names, group, settings, ""))
                if not row.operator:
                    break
    except ShapeJitError as fault:
        reason = str(fault)
    if len(found) > 1:
        widths = " and ".join(str(fit.settings["bits"]) for fit in found)
        reason = f"codes of {widths} bits fit, and no node of {row.operator} tells which"
    return found[0] if len(found) == 1 else _Fit(row, form, names, None, {}, reason)


def _settings_of(row: Row, form: Form, said: Declared, base: str) -> Iterator[Mapping[str, Any]]:
    """The possible settings of a weight; without its node, any bits."""
    for settings in said.settings_of(base):
        if row.operator and "bits" not in settings:
            assert isinstance(form.codes.format, str)
            yield from ({**settings, "bits": bits} for bits in formats[form.codes.format].bits)
        else:
            yield settings


def _layout(row: Row, said: Declared) -> tuple[Mapping[str, int], str]:
    """The settings of the layouts in the config, or the reason why they exclude the scheme."""
    made = dict[str, int]()
    for key, known in row.layouts.items():
        for text in sorted(said.layouts.get(key, ())):
            if text not in known:
                has = any_of([*known] or ["none"])
                return {}, f"the config says {key} {quoted(text)}, {row.name} has {has}"
            settings = known[text]
            if any(made.get(name, value) != value for name, value in settings.items()):
                return {}, f"the config says {key} {text}, and elsewhere what contradicts it"
            made |= settings
    return made, ""


def _preferred(fits: list[_Fit], said: Declared) -> list[_Fit]:
    """The fits that agree best with the words of the config."""
    known = said.words & _METHODS
    if known:
        agree = [len(known & fit.row.words) for fit in fits]
        fits = [fit for fit, count in zip(fits, agree, strict=True) if count == max(agree)]
        fits = [fit for fit in fits if known & fit.row.words or not fit.row.words]
    return fits


def _unclear(names: tuple[str, ...], right: list[_Fit], fits: list[_Fit]) -> Unclear:
    if right:
        schemes = tuple(fit.row.name for fit in right)
        return Unclear(names, schemes, f"fits {' and '.join(schemes)}")
    wrong = [fit for fit in fits if fit.group is None]
    if not wrong:
        schemes = tuple(fit.row.name for fit in fits)
        return Unclear(names, schemes, f"fits {schemes[0]}, which the config contradicts")
    reasons = "; ".join(f"{fit.row.name}: {fit.reason}" for fit in wrong)
    return Unclear(names, (), f"fits no scheme ({reasons})")


def _looks_quantised(name: str, x: Any) -> bool:
    """Whether a tensor without a scheme has the name of a part, or a dtype of codes."""
    last = name.rpartition(".")[2]
    kind = str(getattr(x, "dtype", ""))
    if kind.startswith(("float8_", "float6_", "float4_")):
        return bool(getattr(x, "size", 1))
    if last == "weight":
        return kind in _WEIGHTS
    return last in _TELLING or last.endswith(("_blocks", "_scales"))


def _alone(name: str, x: Any) -> str:
    codes = ("weight", "weight_packed", "qweight", "_blocks", "B", "Q4", "Q8")
    kind, scales = str(getattr(x, "dtype", "")), ("scale", "scale_inv", "_scales", "zeros")
    named = name.endswith(codes)
    if named or (kind in _CODES and not name.endswith(scales)):
        return "there are no scales for these codes"
    return "there are no codes that it belongs to"
