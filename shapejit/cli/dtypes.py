"""`shapejit dtypes`: print the dtype table."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from operator import itemgetter

from ..dtypes import table
from .command import DONE
from .output import print_table

_SYSTEMS = ("onnx", "onnx_name", "openvino", "onednn", "safetensors", "gguf", "torch", "dlpack")
_FIELDS = ("name", "bits", "kind", "signed", *_SYSTEMS)
_ONLY_JSON = ("signed", "onnx")


def options(parser: ArgumentParser) -> None:
    """Add no options: it has none of its own."""


def run(args: Namespace) -> int:
    """Run the command."""
    rows = [{field: getattr(kind, field) for field in _FIELDS} for kind in table.all()]
    print_table({f: itemgetter(f) for f in _FIELDS if f not in _ONLY_JSON}, rows, args.json)
    return DONE
