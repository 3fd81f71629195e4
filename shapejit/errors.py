"""Every exception of the package, with its fields and its message.

A message is composed when it is printed: raising an error only stores its fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from numpy import exceptions

_LONGEST = 600  # characters of a line of a message
_MOST_LINES = 100  # of a message; the rest is one line
_USER = re.compile(r"://[^\s/?#]*@")
_NO_PORT = r"://[^\s/?#@:\[\]]*:(?!\d*(?:[\s/?#'\",:;.)\]]|$))"
_MALFORMED, _MALFORMED_URL = re.compile(_NO_PORT + r"\S*"), re.compile(_NO_PORT + ".*", re.DOTALL)
_QUERY = re.compile(r"(://[^\s?#]*[?#])\S*[^\s'\",:;)]")
_END = re.compile(r"(://[^?#]*[?#]).+", re.DOTALL)


def shortened(text: str, longest: int = _LONGEST) -> str:
    """The text; if it is longer than `longest`, its middle is replaced by `...`.

    >>> shortened("abcdefghijkl", 9)
    'abc...jkl'
    """
    if len(text) <= longest:
        return text
    end = (longest - 3) // 2
    return f"{text[:end]}...{text[-end:]}"


def quoted(text: str, longest: int = 200) -> str:
    """The text as a Python literal, its middle left out if it is long.

    >>> quoted("line\\nbreak")
    "'line\\\\nbreak'"
    """
    return repr(shortened(text, longest))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the nearest known word, if any.

    Case makes no difference, and `a` is near to `a:b` and vice versa. Among several, a word that
    begins with the unknown one is preferred.

    >>> did_you_mean("convrt", ["convert", "inspect"]), did_you_mean("x", ["convert"])
    ("; did you mean 'convert'?", '')
    >>> did_you_mean("AWQ", ["gptq", "awq:gemm", "awq:gemv"])
    "; did you mean 'awq:gemm'?"
    >>> did_you_mean("bfloat", ["float", "bfloat16"])
    "; did you mean 'bfloat16'?"
    """
    from difflib import get_close_matches  # which takes 10 ms to import

    given, names = word[:100].casefold(), {name.casefold(): name for name in reversed([*known])}
    head = given.partition(":")[0]
    parts = [name for name in reversed(names) if given in name.split(":") or name == head]
    near = [given] if given in names else parts or get_close_matches(given, names)
    near.sort(key=lambda name: not name.startswith(given))
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def type_name(x: object) -> str:
    """The type of an object for a message, with its package.

    >>> import numpy as np, shapejit as sj
    >>> type_name(np.zeros(3)), type_name(sj.asarray(np.zeros(3))), type_name([])
    ('numpy.ndarray', 'shapejit.Tensor', 'list')
    """
    package, name = str(type(x).__module__).partition(".")[0], type(x).__name__
    return name if package == "builtins" else f"{package}.{name}"


def redacted(text: str) -> str:
    """The text without the credentials of URLs in it: user, password, query, fragment.

    The end of a URL is guessed: white space. If its port is no number, the URL is hidden as a
    whole: it may hold a password with a character that ends a host's name.

    >>> redacted("ftp://me:secret@host/a, https://host/a?signature=x: no such file")
    'ftp://***@host/a, https://host/a?***: no such file'
    >>> redacted("ftp://me:sec/ret@host/a: no such host")
    'ftp://*** no such host'
    """
    if "://" not in text:
        return text
    return _QUERY.sub(r"\1***", _MALFORMED.sub("://***", _USER.sub("://***@", text)))


def redacted_url(name: str) -> str:
    """A name, without its credentials if it is a URL, whatever characters these contain.

    >>> redacted_url("https://me:secret@host/a b?signature=x y#z"), redacted_url("a b?c")
    ('https://***@host/a b?***', 'a b?c')
    >>> redacted_url("https://me:sec?ret@host/a")
    'https://***'
    """
    return _END.sub(r"\1***", _MALFORMED_URL.sub("://***", _USER.sub("://***@", name)))


def shown(text: str) -> str:
    """A name or a path as it is, or quoted where a terminal could not show it literally.

    URLs lose their credentials.

    >>> print(shown("model.safetensors"), shown("line\\nbreak"))
    model.safetensors 'line\\nbreak'
    """
    text = shortened(redacted_url(text))
    return text if text and text.isprintable() else repr(text)


def message(text: str) -> str:
    """A message of bounded length without control characters other than line breaks.

    >>> message("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    lines = text.split("\n", _MOST_LINES)
    return "\n".join(map(escaped, lines))


def escaped(text: str) -> str:
    """The text as one line that is not too long.

    >>> escaped("a\\nb")
    'a\\\\nb'
    """
    text = shortened(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class ShapeJitError(Exception):
    """The base class of all errors that shapejit raises itself.

    Its message holds no control characters but line breaks, and long lines are
    shortened in the middle: names and values come from files.

    >>> issubclass(ReshapeError, ShapeJitError), issubclass(ReshapeError, ValueError)
    (True, True)
    >>> len(str(ShapeJitError("x" * 10**6))) < 1000
    True
    """

    def __str__(self) -> str:
        return message(self.text)

    @property
    def text(self) -> str:
        """The whole message, before `message` escapes and shortens it."""
        return Exception.__str__(self)  # KeyError's own quotes it


class ReshapeError(ShapeJitError, ValueError):
    """A shape, or an argument about shapes, that an operation does not allow.

    `source` and `target` are the two shapes (sizes in elements; the target as
    it was given, with its `0` and `-1`), `notes` the explanations, one line for
    each dim concerned, `asked_by` the operation.

    >>> print(ReshapeError("cannot reshape", (2, 3), (4, -1), ("dim 1: ...",), "array"))
    cannot reshape (2, 3) into [4, -1]
      dim 1: ...
      asked by array
    """

    def __init__(
        self,
        reason: str,
        source: Sequence[int] | None = None,
        target: Sequence[int] | None = None,
        notes: Sequence[str] = (),
        asked_by: object = "",
    ) -> None:
        self.asked_by = str(asked_by)  # here: a call without an error takes no time for it
        Exception.__init__(self, reason, source, target, notes, self.asked_by)
        self.reason = reason
        self.source = source
        self.target = target
        self.notes = notes

    @property
    def text(self) -> str:
        """The reason with both shapes, the notes, and who asked."""
        head = self.reason
        if self.source is not None:
            head += f" {shape_text(self.source)}"
        if self.target is not None:
            head += f" into {list(self.target)}"
        lines = [head, *(f"  {note}" for note in self.notes)]
        return "\n".join(lines) + asked_by_line(self.asked_by)


class DTypeError(ShapeJitError, TypeError):
    """An unknown or unsupported dtype, or an argument of the wrong type.

    >>> issubclass(DTypeError, TypeError)
    True
    """


class TraceError(ShapeJitError, TypeError):
    """A function passed to `plan` that needs more than the shape of its tensor.

    >>> issubclass(TraceError, TypeError)
    True
    """


class OutOfBoundsError(ReshapeError, IndexError):
    """An index that is out of bounds, or not basic slicing.

    >>> issubclass(OutOfBoundsError, IndexError)
    True
    """


class AxisError(OutOfBoundsError, exceptions.AxisError):
    """An axis that an array does not have; NumPy's error of that name, too.

    >>> from numpy.exceptions import AxisError as NumpyError
    >>> issubclass(AxisError, NumpyError), issubclass(AxisError, OutOfBoundsError)
    (True, True)
    """

    axis = ndim = None


class FormatError(ShapeJitError, ValueError):
    """Data that do not match the format, the shape or the buffer given for them.

    >>> issubclass(FormatError, ValueError)
    True
    """


class UnknownNameError(FormatError, KeyError):
    """A name that a table does not have.

    >>> issubclass(UnknownNameError, FormatError), issubclass(UnknownNameError, KeyError)
    (True, True)
    """


class ExportError(FormatError, BufferError):
    """A Tensor that DLPack, or the version that the consumer understands, cannot describe.

    >>> issubclass(ExportError, BufferError), issubclass(ExportError, ShapeJitError)
    (True, True)
    """


class FileFormatError(ShapeJitError, ValueError):
    """A file that is not what its format requires.

    `path` names the file, `tensor` the tensor (None where the error is not about
    a single one), `reason` says what is wrong.

    >>> print(FileFormatError("a.safetensors", "w", "its dtype 'F7' is unknown"))
    a.safetensors: tensor 'w': its dtype 'F7' is unknown
    """

    def __init__(self, path: object, tensor: str | None, reason: str) -> None:
        super().__init__(path, tensor, reason)
        self.path = path
        self.tensor = tensor
        self.reason = reason

    @property
    def text(self) -> str:
        """The file, the tensor and the fault."""
        where = "" if self.tensor is None else f" tensor {quoted(self.tensor)}:"
        return f"{shown(str(self.path))}:{where} {self.reason}"


def asked_by_line(who: object) -> str:
    """The last line of a message: the operation or the rule that asked, if there is one."""
    return f"\n  asked by {who}" if str(who) else ""


def shape_text(shape: Sequence[int]) -> str:
    """A shape as Python writes a tuple: `(2, 3)`, `(5,)`, `()`."""
    return str(tuple(shape))


def product_text(sizes: Sequence[int]) -> str:
    """A product written out: `(2*5)`, `7`, `1` for no factors."""
    if not sizes:
        return "1"
    text = "*".join(map(str, sizes))
    return text if len(sizes) == 1 else f"({text})"


def copied(dim: int, size: int, zeros: bool) -> str:
    """The note on a 0 that copies the size of a source dim."""
    cancelled = ", cancelled on both sides" if zeros else ""
    return f"dim {dim}:  0 copies source dim {dim} -> {size}{cancelled}"


def nothing_to_copy(dim: int, rank: int) -> str:
    """The note on a 0 that copies, beyond the source's dims."""
    return f"dim {dim}:  0 would copy source dim {dim}, but the source has rank {rank}"


def second_infer(dim: int) -> str:
    """The note on a second -1."""
    return f"dim {dim}: a second -1; at most one is allowed"


def not_a_size(dim: int, token: int) -> str:
    """The note on a size below -1 or beyond int64."""
    if token < 0:
        return f"dim {dim}: invalid size {token}; -1 is the only negative value allowed"
    return f"dim {dim}: {token} does not fit int64"


def negative_source(dim: int, size: int) -> str:
    """The note on a source size below zero or beyond int64."""
    return f"source dim {dim}: invalid size {size}"


def overflow(what: str) -> str:
    """The note on a product of sizes beyond int64; `what` is "source" or "target"."""
    return f"the product of the non-zero sizes of the {what} exceeds int64"


def infer_undefined(dim: int, count: int) -> str:
    """The note on a -1 beside a size of zero."""
    return f"dim {dim}: -1 is undefined where the other sizes multiply to 0 ({count} / 0)"


def infer_not_whole(dim: int, count: int, known: Sequence[int], product: int) -> str:
    """The note on a -1 that would have to be a fraction."""
    quotient = f"{count / product:g}"
    if float(quotient).is_integer():  # rounded to an integer: 1000001 / 2
        quotient = f"{count // product} remainder {count % product}"
    return f"dim {dim}: -1 would have to be {count} / {product_text(known)} = {quotient}"


def counts_differ(source: int, target: int) -> str:
    """The note on two shapes with different numbers of elements."""
    return f"the source has {elements(source)}, the target {target}"


def elements(count: int) -> str:
    """A number of elements as text: `1 element`, `5 elements`."""
    return number_of(count, "element")


def number_of(count: int, what: str) -> str:
    """A number of things as text: `1 tensor`, `5 tensors`."""
    return f"{count} {what}" + ("s" if count != 1 else "")


class about:  # noqa: N801  # a context manager, which reads as one; small calls enter several
    """A context that prefixes the messages of shapejit's errors by `which`, one of many inputs.

    >>> with about("tensor 'w'"):
    ...     raise DTypeError("unknown dtype 'F7'")
    Traceback (most recent call last):
        ...
    shapejit.errors.DTypeError: tensor 'w': unknown dtype 'F7'
    """

    def __init__(self, which: object) -> None:
        self.which = which

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, fault: object, trace: object) -> None:
        if isinstance(fault, ReshapeError):
            reason = f"{self.which}: {fault.reason}"
            given = reason, fault.source, fault.target, fault.notes, fault.asked_by
            raise type(fault)(*given) from None
        if isinstance(fault, ShapeJitError):
            raise type(fault)(f"{self.which}: {fault}") from None


class in_file:  # noqa: N801  # as `about`
    """Let errors raised within be FileFormatErrors, of this file and tensor if they name none.

    >>> with in_file("a.safetensors", "w"):
    ...     raise FormatError("its dtype 'F7' is unknown")
    Traceback (most recent call last):
        ...
    shapejit.errors.FileFormatError: a.safetensors: tensor 'w': its dtype 'F7' is unknown
    """

    def __init__(self, path: object, tensor: str | None = None) -> None:
        self.path, self.tensor = path, tensor

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, fault: object, trace: object) -> None:
        if isinstance(fault, FileFormatError):
            path = self.path if fault.path is None else fault.path
            tensor = self.tensor if fault.tensor is None else fault.tensor
            raise FileFormatError(path, tensor, fault.reason) from None
        if isinstance(fault, ShapeJitError):
            raise FileFormatError(self.path, self.tensor, fault.text) from None
