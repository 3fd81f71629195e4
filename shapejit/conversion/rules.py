"""The table of rules, a row each: how a rule is written, documented, parsed and applied."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from ..dtypes.table import dtype
from ..errors import DTypeError, FileFormatError, FormatError, ReshapeError, did_you_mean, quoted
from ..files.paths import Path, file_name
from ..files.places import small_file
from ..quantization.scheme import DECODED
from ..quantization.table import schemes
from .actions import exclude, join, keep, rename, select, split, stack, unstack
from .decoding import to
from .quantizing import LLAMA_CPP, cast_floats
from .repacks import formats_of, repacked
from .tensors import Rule, Tensors, each

Given = Rule | tuple[str, str] | Mapping[str, str]
_MOST = 1_000_000  # bytes of a file of rules
_SHORT = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


class RuleKind(NamedTuple):
    """A kind of rule.

    `form` is its syntax, `text` its line of help. `read` (the option for errors, the text) returns
    the regular expression (or a fragment of names) and the values. `apply` changes the tensors of a
    destination.
    """

    form: str
    text: str
    read: Callable[[str, str], tuple[str, tuple[Any, ...]]]
    apply: Callable[[Rule, Tensors], None]


def _ints(given: str, text: str) -> tuple[int, ...]:
    """Comma-separated integers, or none."""
    return tuple(_int(given, token) for token in (text.split(",") if text.strip() else []))


def _int(given: str, token: str) -> int:
    found = re.fullmatch(r"\s*-?([0-9]+)\s*", token)
    if found is None:
        raise ReshapeError(f"{given}: {quoted(token)} is not an integer")
    if len(found[1]) > 19:  # int() may refuse to read them
        raise ReshapeError(f"{given}: {quoted(token, 40)} is not an integer of 64 bits")
    return int(token)


def _dtype(given: str, text: str) -> tuple[str]:
    """The name of a dtype; names of safetensors, such as F8_E4M3, take precedence."""
    with suppress(DTypeError):
        return (dtype(text, "safetensors").name,)
    try:
        return (dtype(text).name,)
    except DTypeError as fault:
        raise DTypeError(f"{given}: {fault}") from None


def _slices(given: str, text: str) -> tuple[slice | int, ...]:
    """Comma-separated indices and slices, as in Python."""
    made: list[slice | int] = []
    for token in text.split(","):
        ends = [_int(given, end) if end.strip() else None for end in token.split(":")]
        if len(ends) > 3 or (len(ends) == 1 and ends[0] is None) or (ends[2:] == [0]):
            raise ReshapeError(f"{given}: {quoted(token)} is not an index or a slice")
        made.append(ends[0] if len(ends) == 1 and ends[0] is not None else slice(*ends))
    return tuple(made)


def _parted(form: str, values: Callable[[str, str], tuple[Any, ...]]) -> Any:
    """A reader of `REGEX=...`, split at the last `=`."""

    def read(given: str, text: str) -> tuple[str, tuple[Any, ...]]:
        pattern, found, rest = text.rpartition("=")
        if not found:
            raise ReshapeError(f"{given} is not of the form {form}: it has no '='")
        return pattern, values(given, rest)

    return read


def _names(given: str, text: str) -> tuple[int, tuple[tuple[str, int | None], ...], str]:
    """`AXIS:NAME,NAME...`, perhaps with sizes (`NAME:SIZE`), perhaps followed by `->NAME`."""
    axis, found, rest = text.partition(":")
    rest, _, whole = rest.partition("->")
    names = [name.partition(":") for name in rest.split(",")]
    if not found or not all(name for name, _, _ in names):
        raise ReshapeError(f"{given}: {quoted(text)} is not AXIS:NAME,NAME...")
    sizes = tuple((name, _int(given, size) if colon else None) for name, colon, size in names)
    return _int(given, axis), sizes, whole


def _joined(given: str, text: str) -> tuple[int, tuple[str, ...], str]:
    axis, names, whole = _names(given, text)
    if not whole or any(size is not None for _, size in names):
        raise ReshapeError(f"{given}: {quoted(text)} is not AXIS:NAME,NAME...->NAME")
    return axis, tuple(name for name, _ in names), whole


def _split(given: str, text: str) -> tuple[int, tuple[tuple[str, int | None], ...]]:
    axis, names, whole = _names(given, text)
    if whole or len({size is None for _, size in names}) > 1:
        raise ReshapeError(f"{given}: either all parts have a size, or none")
    return axis, names


def _for_all(text: str) -> tuple[str, str]:
    """`VALUE`, for all names, or `REGEX=VALUE`."""
    pattern, found, value = text.rpartition("=")
    return pattern if found else ".*", value


def _target(given: str, text: str) -> tuple[str, tuple[str, ...]]:
    """A dtype that weights are decoded to, or a scheme."""
    pattern, name = _for_all(text)
    name = _SHORT.get(name.lower(), name)
    if name not in DECODED and name not in schemes:
        known = (*_SHORT, *schemes)
        listed = f"{', '.join(_SHORT)} and the schemes that `shapejit schemes` lists"
        hint = did_you_mean(name, known) or f"; known are {listed}"
        raise FormatError(f"{given}: unknown dtype or scheme {quoted(name)}{hint}")
    return pattern, (name,)


def _float(given: str, text: str) -> tuple[str, tuple[str, str]]:
    """A float dtype, with a policy before it, or ""."""
    pattern, name = _for_all(text)
    policy, colon, kind = name.rpartition(":")
    kind = _SHORT.get(kind.lower(), kind)
    if kind not in DECODED or (colon and policy != LLAMA_CPP):
        known = ", ".join((*_SHORT, *(f"{LLAMA_CPP}:{short}" for short in _SHORT)))
        raise FormatError(f"{given}: unknown dtype {quoted(name)}; known are {known}")
    return pattern, (kind, policy)


def _substitution(given: str, text: str) -> tuple[str, tuple[str]]:
    """`s/REGEX/NAME/`, with any character instead of `/`."""
    parts = text[2:].split(text[1:2]) if text[:1] == "s" and len(text) > 1 else []
    if len(parts) != 3 or parts[2]:
        raise ReshapeError(f"{given} is not of the form s/REGEX/NAME/")
    return parts[0], (parts[1],)


def _numbered(given: str, text: str) -> tuple[str, tuple[()]]:
    """A part of a name that ends in `.#`, as a regular expression of whole names."""
    if not re.fullmatch(r"[^#]*[^#.]\.#", text):
        raise ReshapeError(f"{given}: {quoted(text)} is not a part of a name and '.#'")
    return rf"((?:.*\.)?{re.escape(text[:-2])})\.([0-9]{{1,9}})((?:\..*)?)", ()


def _container(given: str, text: str) -> tuple[str, tuple[()]]:
    _numbered(given, text)
    return rf"((?:.*\.)?{re.escape(text[:-2])})(?!\.[0-9]+(?:\.|$))((?:\..*)?)", ()


def _alone(given: str, text: str) -> tuple[str, tuple[()]]:
    return text, ()


def _reshaped(r: Rule, tensors: Tensors) -> None:
    each(r, tensors, lambda t: tensors.reshape(t, r.values))


RULES: dict[str, RuleKind] = {
    "to": RuleKind("[REGEX=]TYPE", "TYPE is bf16, f16 or f32: decode quantised weights. TYPE is "
                   "a scheme: quantised weights keep their codes and are stored in it; if none is "
                   "quantised, floats are quantised (round to nearest). Other tensors are copied",
                   _target, to),
    "select": RuleKind("REGEX", "drop all other tensors", _alone, select),
    "exclude": RuleKind("REGEX", "drop these tensors", _alone, exclude),
    "keep": RuleKind("REGEX", "copy these tensors, even if their format is unknown; --dtype and "
                     "--to SCHEME skip them, wherever this rule stands",
                     _alone, keep),
    "reshape": RuleKind("REGEX=SHAPE", "change the shape; --spec defines what 0 and -1 mean",
                        _parted("REGEX=SHAPE", _ints), _reshaped),
    "permute": RuleKind("REGEX=AXES", "permute the dims: dim i becomes the source's dim AXES[i]",
                        _parted("REGEX=AXES", _ints),
                        lambda r, tensors: each(r, tensors, lambda t: t.permute_dims(r.values))),
    "cast": RuleKind("REGEX=DTYPE", "cast to a dtype, such as bfloat16 or BF16",
                     _parted("REGEX=DTYPE", _dtype),
                     lambda r, tensors: each(r, tensors, lambda t: tensors.cast(t, *r.values))),
    "dtype": RuleKind("[REGEX=]TYPE", "cast floats to bf16, f16 or f32, except parts of quantised "
                      "weights; llama.cpp:TYPE casts vectors, norms and routers to f32",
                      _float, cast_floats),
    "repack": RuleKind("REGEX=[DTYPE:]FORMAT->FORMAT", "convert packed codes (DTYPE is uint4 by "
                       "default) to another packing format; see `shapejit formats`",
                       _parted("REGEX=FORMAT->FORMAT", formats_of), repacked),
    "slice": RuleKind("REGEX=SLICES", "index and slice the dims as in NumPy, such as 0:4,::2",
                      _parted("REGEX=SLICES", _slices),
                      lambda r, tensors: each(r, tensors, lambda t: t[r.values])),
    "rename": RuleKind("s/REGEX/NAME/", r"rename; \1 in NAME is the first group of REGEX",
                       _substitution, rename),
    "split": RuleKind("REGEX=AXIS:NAME,NAME...", r"split along a dim, into equal parts or those "
                      r"of given sizes (NAME:SIZE); \1 in NAME is the first group of REGEX",
                      _parted("REGEX=AXIS:NAME,...", _split), split),
    "concat": RuleKind("REGEX=AXIS:NAME,NAME...->NAME", "concatenate each tensor and those of the "
                       "given names along a dim, under a new name",
                       _parted("REGEX=AXIS:NAME,...->NAME", _joined), join),
    "interleave": RuleKind("REGEX=AXIS:NAME,NAME...->NAME", "concat, but interleaved along the "
                           "dim: index 0 of each, then index 1, as gate and up often are",
                           _parted("REGEX=AXIS:NAME,...->NAME", _joined),
                           partial(join, interleaved=True)),
    "stack": RuleKind("PART.#", "stack PART.0, PART.1 and so on along a new dim 0, in numeric "
                      "order", _numbered, stack),
    "unstack": RuleKind("PART.#", "undo a stack: one tensor for each index of dim 0", _container,
                        unstack),
}  # fmt: skip


def rule(option: str, text: str) -> Rule:
    """Parse a rule (`option` is a key of `RULES`) as it is written on the command line.

    The text after the last `=` is the value; regular expressions match whole names. Raises
    ReshapeError, DTypeError or FormatError for text that is no such rule.

    >>> rule("reshape", r".*\\.weight=12,64,-1").values
    (12, 64, -1)
    """
    if option not in RULES:
        raise FormatError(f"unknown rule {quoted(str(option))}; known are {', '.join(RULES)}")
    if not isinstance(text, str):
        raise FormatError(f"--{option} takes text, not {quoted(repr(text))}")
    given = f"--{option} {quoted(text)}"
    pattern, values = RULES[option].read(given, text)
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as fault:
        reason = f"{given}: {quoted(pattern)} is not a regular expression: {fault}"
        raise ReshapeError(reason) from None
    return Rule(option, compiled, values, text)


def rules_of(given: Sequence[Given]) -> list[Rule]:
    """Parse rules given as `("to", "bf16")`, or as `{"to": "bf16"}` like in TOML.

    `("rules", path)` stands for those of a file.
    """
    made = list[Rule]()
    for each_ in given:
        if isinstance(each_, Rule):
            made.append(each_)
        elif isinstance(each_, Mapping):
            made += [rule(*item) for item in each_.items()]
        elif isinstance(each_, tuple) and len(each_) == 2:
            option, text = each_
            made += read_rules(text) if option == "rules" else [rule(option, text)]
        else:
            raise FormatError(f"a rule is a pair of its kind and its text, not {each_!r}")
    return made


def read_rules(path: Path) -> list[Rule]:
    """The rules of a TOML file: tables `[[rule]]` with one key each, the option of the rule.

    Raises FileFormatError for other content.
    """
    name = file_name(path)
    data = small_file(name, _MOST)
    try:
        found = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as fault:
        raise FileFormatError(name, None, f"it is not TOML: {fault}") from None
    tables = found.pop("rule", [])
    if found or not isinstance(tables, list):
        reason = f"expected tables [[rule]], found {quoted(next(iter(found), 'rule'))}"
        raise FileFormatError(name, None, reason)
    for table in tables:
        if not isinstance(table, dict) or len(table) != 1:
            reason = "a table [[rule]] has one key, the kind of the rule"
            raise FileFormatError(name, None, reason)
    try:
        return rules_of(tables)
    except (ReshapeError, DTypeError, FormatError) as fault:
        raise FileFormatError(name, None, str(fault)) from None
