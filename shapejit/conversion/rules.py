"""The table of rules: how each is written, documented, parsed and applied."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from ..arrays.tensor import Tensor
from ..dtypes.table import dtype
from ..errors import (
    DTypeError,
    FormatError,
    ReshapeError,
    about,
    did_you_mean,
    in_file,
    quoted,
)
from ..files.paths import Path, file_name
from ..files.places import small_file
from ..quantization.scheme import DECODED_DTYPES, schemes
from .actions import exclude, join, keep, rename, select, split, stack, unstack
from .decoding import to
from .quantizing import LLAMA_CPP, cast_floats
from .repacks import formats_of, repacked
from .tensors import Rule, Tensors, each

Given = Rule | tuple[str, str] | Mapping[str, str]
_MOST = 1_000_000  # bytes of a file of rules
_SHORT = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
_FLOATS = (*_SHORT, *DECODED_DTYPES)


def _no_values(_: str) -> tuple[Any, ...]:
    return ()


class RuleKind(NamedTuple):
    """A kind of rule.

    `form` is its syntax, `text` its line of help. `apply` changes the tensors of a destination;
    `values` parses the text after the last `=`, and `pattern` the regular expression of names
    before it. If the form has no `REGEX=`, both parse the whole text.
    """

    form: str
    text: str
    apply: Callable[[Rule, Tensors], None]
    values: Callable[[str], tuple[Any, ...]] = _no_values
    pattern: Callable[[str], str] = str

    def read(self, given: str, text: str) -> tuple[str, tuple[Any, ...]]:
        """Parse the regular expression and the values; errors begin with `given`."""
        pattern, found, value = text.rpartition("=")
        if "REGEX=" not in self.form:
            pattern = value = text
        elif self.form.startswith("[") and not found:
            pattern = ".*"
        elif not found:
            raise ReshapeError(f"{given} is not of the form {self.form}: it has no '='")
        with about(given):
            return self.pattern(pattern), self.values(value)


def _ints(text: str) -> tuple[int, ...]:
    """Comma-separated integers, or none."""
    return tuple(map(_int, text.split(","))) if text.strip() else ()


def _int(token: str) -> int:
    found = re.fullmatch(r"\s*-?([0-9]+)\s*", token)
    if found is None:
        raise ReshapeError(f"{quoted(token)} is not an integer")
    if len(found[1]) > 19:  # int() may refuse to read them
        raise ReshapeError(f"{quoted(token, 40)} is not an integer of 64 bits")
    return int(token)


def _dtype(text: str) -> tuple[str]:
    """The name of a dtype; names of safetensors, such as F8_E4M3, take precedence."""
    with suppress(DTypeError):
        return (dtype(text, "safetensors").name,)
    return (dtype(text).name,)


def _slices(text: str) -> tuple[slice | int, ...]:
    """Comma-separated indices and slices, as in Python."""
    made: list[slice | int] = []
    for token in text.split(","):
        first, *ends = [_int(end) if end.strip() else None for end in token.split(":")]
        if len(ends) > 2 or ends[1:] == [0] or (first is None and not ends):
            raise ReshapeError(f"{quoted(token)} is not an index or a slice")
        made.append(slice(first, *ends) if first is None or ends else first)
    return tuple(made)


def _joined(text: str) -> tuple[int, tuple[str, ...], str]:
    found = re.fullmatch(r"([^:]*):([^:,]+?(?:,[^:,]+?)*)->(.+)", text)
    if found is None:
        raise ReshapeError(f"{quoted(text)} is not AXIS:NAME,NAME...->NAME")
    return _int(found[1]), tuple(found[2].split(",")), found[3]


def _split(text: str) -> tuple[int, tuple[tuple[str, int | None], ...]]:
    axis, found, rest = text.partition(":")
    names = [name.partition(":") for name in rest.split(",")]
    if not found or not all(name for name, _, _ in names):
        raise ReshapeError(f"{quoted(text)} is not AXIS:NAME,NAME...")
    if "->" in rest or len({colon for _, colon, _ in names}) > 1:
        raise ReshapeError("either all parts have a size, or none")
    return _int(axis), tuple((name, _int(size) if colon else None) for name, colon, size in names)


def _target(text: str) -> tuple[str]:
    """A dtype that weights are decoded to, or a scheme."""
    name = _SHORT.get(text.lower(), text)
    if name not in DECODED_DTYPES and name not in schemes:
        hint = did_you_mean(name, (*_FLOATS, *schemes))
        hint = (
            hint
            or f"; known are {', '.join(_FLOATS)} and the schemes that `shapejit schemes` lists"
        )
        raise FormatError(f"unknown dtype or scheme {quoted(name)}{hint}")
    return (name,)


def _float(text: str) -> tuple[str, str]:
    """A float dtype, optionally with a policy before it, or ""."""
    policy, colon, kind = text.rpartition(":")
    kind = _SHORT.get(kind.lower(), kind)
    if kind not in DECODED_DTYPES or (colon and policy != LLAMA_CPP):
        known = f"; known are {', '.join(_FLOATS)}, each also as {LLAMA_CPP}:{_FLOATS[0]}"
        raise FormatError(f"unknown dtype {quoted(text)}{did_you_mean(kind, _FLOATS) or known}")
    return kind, policy


def _substitution(text: str) -> tuple[str, str]:
    """The regular expression and the name of `s/REGEX/NAME/`, with any character instead of `/`."""
    parts = text[2:].split(text[1:2]) if text[:1] == "s" and len(text) > 1 else []
    if len(parts) != 3 or parts[2]:
        raise ReshapeError("it is not of the form s/REGEX/NAME/")
    return parts[0], parts[1]


def _numbered(text: str) -> str:
    """A name ending in `.#`, as a regular expression of whole names."""
    return rf"{_module(text)}\.([0-9]{{1,9}})((?:\..*)?)"


def _container(text: str) -> str:
    return rf"{_module(text)}(?!\.[0-9]+(?:\.|$))((?:\..*)?)"


def _module(text: str) -> str:
    if not re.fullmatch(r"[^#]*[^#.]\.#", text):
        raise ReshapeError(f"{quoted(text)} is not a part of a name and '.#'")
    return rf"((?:.*\.)?{re.escape(text[:-2])})"


RULES: dict[str, RuleKind] = {
    "to": RuleKind("[REGEX=]TYPE", "if TYPE is bf16, f16 or f32, decode quantised weights; if it "
                   "is a scheme, store quantised weights in it with the same codes, or, if none is "
                   "quantised, quantise floats (round to nearest). Other tensors are copied",
                   to, _target),
    "select": RuleKind("REGEX", "drop all other tensors", select),
    "exclude": RuleKind("REGEX", "drop these tensors", exclude),
    "keep": RuleKind("REGEX", "copy these tensors, even if their format is unknown; --dtype and "
                     "--to SCHEME skip them, wherever this rule stands", keep),
    "reshape": RuleKind("REGEX=SHAPE", "change the shape; --spec defines what 0 and -1 mean",
                        lambda r, tensors: each(r, tensors, tensors.reshape, r.values),
                        _ints),
    "permute": RuleKind("REGEX=AXES", "permute the dims: dim i becomes the source's dim AXES[i]",
                        lambda r, tensors: each(r, tensors, Tensor.permute_dims, r.values),
                        _ints),
    "cast": RuleKind("REGEX=DTYPE", "cast to a dtype, such as bfloat16 or BF16",
                     lambda r, tensors: each(r, tensors, tensors.cast, *r.values),
                     _dtype),
    "dtype": RuleKind("[REGEX=]TYPE", "cast floats to bf16, f16 or f32, except parts of quantised "
                      "weights; llama.cpp:TYPE casts vectors, norms and routers to f32",
                      cast_floats, _float),
    "repack": RuleKind("REGEX=[DTYPE:]FORMAT->FORMAT", "convert packed codes (DTYPE is uint4 by "
                       "default) to another packing format; see `shapejit formats`",
                       repacked, formats_of),
    "slice": RuleKind("REGEX=SLICES", "index and slice the dims as in NumPy, such as 0:4,::2",
                      lambda r, tensors: each(r, tensors, lambda t: t[r.values]), _slices),
    "rename": RuleKind("s/REGEX/NAME/", r"rename; \1 in NAME is the first group of REGEX",
                       rename, lambda text: _substitution(text)[1:],
                       lambda text: _substitution(text)[0]),
    "split": RuleKind("REGEX=AXIS:NAME,NAME...", r"split along a dim, into equal parts or those "
                      r"of given sizes (NAME:SIZE); \1 in NAME is the first group of REGEX",
                      split, _split),
    "concat": RuleKind("REGEX=AXIS:NAME,NAME...->NAME", "concatenate each tensor and those of the "
                       "given names along a dim, under a new name", join, _joined),
    "interleave": RuleKind("REGEX=AXIS:NAME,NAME...->NAME", "concat, but interleaved along the "
                           "dim: index 0 of each, then index 1, as gate and up often are",
                           partial(join, interleaved=True), _joined),
    "stack": RuleKind("PART.#", "stack PART.0, PART.1 and so on along a new dim 0, in numeric "
                      "order", stack, pattern=_numbered),
    "unstack": RuleKind("PART.#", "undo a stack: one tensor for each index of dim 0",
                        unstack, pattern=_container),
}  # fmt: skip


def rule(option: str, text: str) -> Rule:
    """Parse a rule (`option` is a key of `RULES`) as written on the command line.

    The text after the last `=` is the value; regular expressions match whole names. Raises
    ReshapeError, DTypeError or FormatError for invalid text.

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
    with in_file(name):
        try:
            found = tomllib.loads(data.decode())
        except (ValueError, RecursionError) as fault:
            raise FormatError(f"it is not TOML: {fault}") from None
        tables = found.pop("rule", [])
        if found or not isinstance(tables, list):
            where = quoted(next(iter(found), "rule"))
            raise FormatError(f"expected tables [[rule]], found {where}")
        for table in tables:
            if not isinstance(table, dict) or len(table) != 1:
                raise FormatError("a table [[rule]] has one key, the kind of the rule")
        return rules_of(tables)
