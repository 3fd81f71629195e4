"""detect: the quantised weights of a checkpoint, and the tensors of each, without guesses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..arrays.tensor import Tensor, asarray
from ..errors import DTypeError, ShapeJitError, quoted
from ..packings.rows import formats
from ..runtime.ndarrays import is_mapping
from .config_keys import malformed, unknown_keys, unknown_values
from .configuration import Declared, declared
from .contradictions import contradictions
from .fits import SIGNS, Fit, Unclear, lone, looks_quantised, preferred, unclear_by
from .forms import Form, SchemeRow
from .groups import Group, any_of
from .matching import fitted, group_of, sizes_of
from .naming import beginnings, companions, weight_name
from .parts import Found, Parts, WeightNode
from .rows import ROWS


class Detected(list[Found]):
    """The weights of a checkpoint; `unclear` are tensors without a unique scheme.

    >>> Detected().unclear, Detected().warnings
    ([], [])
    """

    def __init__(self) -> None:
        super().__init__()
        self.unclear: list[Unclear] = []
        self.warnings: list[str] = []


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
    fc2.qzeros: no codes belong to it
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
        """A tensor as detection sees it."""
        x = self.given[name]
        made = getattr(x, "outline", None)
        if made is None:  # those of gguf.ReaderTensor are bytes in an attribute
            made = x.data if hasattr(x, "tensor_type") else x
        return asarray(made)


def detected(given: Mapping[str, Any], said: Declared) -> Detected:
    """`detect` with the facts of a config."""
    made, used, tensors = Detected(), set[str](), _Tensors(given)
    doubt = unknown_values(said)
    nodes: Sequence[WeightNode] = getattr(given, "weight_nodes", ())
    by_tensor = {name: node for node in nodes for name in node.tensors.values()}
    by_tensor |= {node.codes: node for node in nodes}
    for name in sorted(given):
        node = by_tensor.get(name)
        fits = [] if name in used else list(_fits(name, tensors, said, node))
        fitting = [fit for fit in fits if fit.found]
        right = preferred(fitting, said)
        if not fits or (node is not None and node.fault and not right):
            continue
        names = tuple(sorted({n for fit in right or fits for n in fit.names}))
        used |= set(names)
        if doubt and any(fit.row.file_type is None for fit in fitting):
            made.unclear.append(Unclear(names, (), doubt))
        elif len(right) == 1 and right[0].found:
            made.append(right[0].found)
        else:
            fits += [] if fitting else _incomplete(name, tensors, said)
            made.unclear.append(unclear_by(names, right, fits, said))
    for node in nodes:
        left = tuple(name for name in node.tensors.values() if name not in used)
        used |= {*left}
        if left:
            made.unclear.append(Unclear(left, (), node.fault))
    for name in given:
        if name not in used and looks_quantised(name, given[name]):
            made.unclear.append(Unclear((name,), (), lone(name, given[name])))
    made.warnings = [*contradictions(made, said), *malformed(said)]
    if made or made.unclear:
        made.warnings += unknown_keys(said)
    return made


@lru_cache(maxsize=256)
def _candidates(last: str, kind: str | None) -> list[tuple[SchemeRow, list[tuple[Form, str]]]]:
    """The forms of each scheme whose codes may have a name with this last component.

    With each comes the beginning of the last component of other parts' names. Codes that have the
    name of a module are not called weight. `kind` is the type of a tensor of a GGUF file.
    """
    made = [
        (row, [
            (form, base)
            for form in row.forms
            if form.codes.part or last != "weight"
            for base in ([last.removesuffix("weight")] if kind else
                         beginnings(last, form.parts[0], row.separators))
        ])
        for row in ROWS
        if row.file_type == kind
    ]  # fmt: skip
    return [(row, forms) for row, forms in made if forms]


def _fits(name: str, tensors: _Tensors, said: Declared, node: WeightNode | None) -> Iterator[Fit]:
    """The schemes whose codes `name` may be, and whose other parts exist.

    `node` is the node of a graph with this tensor, if there is one: it takes precedence over names.
    """
    kind = getattr(getattr(tensors.given[name], "tensor_type", None), "name", None)
    stem = name[: name.rfind(".") + 1]
    for row, forms in _candidates(name.removeprefix(stem), kind):
        if node is not None and row.operator:
            continue
        reasons = list[Fit]()
        for form, begin in forms:
            base = stem + begin
            named, missing = companions(form, name, base, tensors.names)
            if missing is not None or not _may_be(name, form, named, tensors):
                continue
            made = _fit(row, form, base[: base.rfind(".") + 1], named, tensors, said)
            if made.found:
                yield made
                break
            reasons.append(made)
        else:
            yield from reasons[:1]
    if node is not None and name == node.codes and not node.fault:
        for row in ROWS:
            if row.operator == node.operator:
                yield _fit_of_node(row, node, tensors)


def _may_be(name: str, form: Form, named: Mapping[str, str], tensors: _Tensors) -> bool:
    """Whether parts of these names, with codes of this name, may be those of a form."""
    # A single number is no table, as other forms have.
    single = (part.key for part in form.parts if part.dims == "1" and not part.optional)
    if any(tensors.look(named[key]).ndim > 1 for key in single):
        return False
    return bool(form.codes.part) or tensors.look(name).dtype.name in form.parts[0].kinds


def _fit_of_node(row: SchemeRow, node: WeightNode, tensors: _Tensors) -> Fit:
    """Whether the tensors fit with the settings of the node."""
    names = tuple(node.tensors.values())
    try:
        parts = {key: tensors.look(name) for key, name in node.tensors.items()}
        group = group_of(row, parts, node.settings)
    except ShapeJitError as fault:
        return Fit(row, names, None, str(fault).removeprefix(f"{row.name}: "))
    named = {key: node.tensors[key] for key in group.tensors}
    found = _found(row, group, named, {key: key for key in named}, node.settings, tensors)
    return Fit(row, names, found._replace(prefix=found.parts.weight.removesuffix(".weight")))


def _fit(
    row: SchemeRow,
    form: Form,
    stem: str,
    named: Mapping[str, str],
    tensors: _Tensors,
    said: Declared,
) -> Fit:
    """Whether the tensors fit with any of the settings in the config.

    `named` are their names by the keys of the form: the keys in `Parts` and a common `stem`.
    """
    codes, names = named[form.codes.part], tuple(named.values())
    keys = {part: name.removeprefix(stem) for part, name in named.items()}
    if row.file_type is None:
        stems = {codes.rpartition(separator)[0] + separator for separator in row.separators}
        stems = stems if form.codes.part else {f"{codes}_"}
        telling = {stem + other for stem in stems for other in SIGNS}
        if others := (telling & tensors.names).difference(names):
            return Fit(row, names, None, f"has no {', '.join(sorted(others))}")
    else:
        keys = {key: key for key in named}
    layout, reason = _layout(row, said)
    of_module = _settings_of(row, form, said, codes.rpartition(".")[0])
    found = list[Found]()
    for settings in () if reason else ({**each, **layout} for each in of_module):
        if wrong := _wrong_width(form, settings):
            reason = reason or wrong
            continue
        try:
            parts = {part: tensors.look(name) for part, name in named.items()}
            group = fitted(row.name, form, parts, keys, sizes_of(row.name, settings))
        except ShapeJitError as fault:
            reason = reason or str(fault).removeprefix(f"{row.name}: ")
            continue
        if form.asks and not any(a in settings or a in group.tensors for a in form.asks):
            return Fit(row, names, None, f"nothing tells {' or '.join(form.asks)}")
        found.append(_found(row, group, named, keys, settings, tensors))
        if not row.operator:
            break
    if len(found) > 1:
        widths = " and ".join(str(each.parts.settings["bits"]) for each in found)
        reason = f"codes of {widths} bits fit, and no node of {row.operator} tells which"
    return Fit(row, names, found[0] if len(found) == 1 else None, reason)


def _wrong_width(form: Form, settings: Mapping[str, Any]) -> str:
    """Why codes of a format cannot have the bits of the config; "" if they can."""
    codes, bits = form.codes, settings.get("bits")
    if bits is None or "{b}" not in codes.dtype or not isinstance(codes.format, str):
        return ""
    widths = formats[codes.format].bits
    wrong = widths and bits not in widths
    return f"has codes of {any_of(widths)} bits, the config says {bits}" if wrong else ""


def _found(
    row: SchemeRow, group: Group, named: Mapping[str, str], keys: Mapping[str, str],
    settings: Mapping[str, Any], tensors: _Tensors,
) -> Found:  # fmt: skip
    codes = named[group.form.codes.part]
    prefix = codes.removesuffix(keys[group.form.codes.part]).removesuffix(".")
    parts = Parts(
        {keys[part]: t for part, t in group.tensors.items()}, settings, weight_name(row, codes),
        group, {keys[part]: name for part, name in named.items()},
        {part: tensors.given[name] for part, name in named.items()},
    )  # fmt: skip
    return Found(prefix, row.name, parts)


def _settings_of(
    row: SchemeRow, form: Form, said: Declared, base: str
) -> Iterator[Mapping[str, Any]]:
    """The possible settings of a weight; without its node, any bits."""
    for settings in said.settings_of(base):
        if row.operator and "bits" not in settings:
            assert isinstance(form.codes.format, str)
            yield from ({**settings, "bits": bits} for bits in formats[form.codes.format].bits)
        else:
            yield settings


def _layout(row: SchemeRow, said: Declared) -> tuple[Mapping[str, int], str]:
    """The settings of the layouts in the config, or the reason why they exclude the scheme."""
    made = dict[str, int]()
    for key, known in row.layouts.items():
        for text in sorted(said.layouts.get(key, ())):
            if text not in known:
                has = any_of([*known] or ["none"])
                return {}, f"the config says {key} {quoted(text)}, {row.name} has {has}"
            settings = known[text]
            if any(made.get(name, value) != value for name, value in settings.items()):
                return {}, f"the config says {key} {text}, and contradicts it elsewhere"
            made |= settings
    return made, ""


def _incomplete(name: str, tensors: _Tensors, said: Declared) -> Iterator[Fit]:
    """The schemes of the config whose codes a tensor may be, and which part each lacks."""
    stem, kind = name[: name.rfind(".") + 1], tensors.look(name).dtype.name
    for row, forms in _candidates(name.removeprefix(stem), None):
        for form, begin in forms if row.words & said.words else ():
            _, missing = companions(form, name, stem + begin, tensors.names)
            if missing is not None and kind in form.part(form.codes.part).kinds:
                yield Fit(row, (name,), None, f"{any_of(missing.name.split('|'))} is missing")
                break
