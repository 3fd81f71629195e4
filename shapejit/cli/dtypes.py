"""`shapejit dtypes`: print the dtype table."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ..dtypes import table
from .command import DONE
from .output import print_json, print_table

_SYSTEMS = ("onnx", "onnx_name", "openvino", "onednn", "safetensors", "gguf", "torch", "dlpack")
_FIELDS = ("name", "bits", "kind", "signed", *_SYSTEMS)
_ONLY_JSON = ("signed", "onnx")


def options(parser: ArgumentParser) -> None:
    """Add no options: it has none of its own."""


def run(args: Namespace) -> int:
    """Run the command."""
    rows = [{field: getattr(kind, field) for field in _FIELDS} for kind in table.all()]
    if args.json:
        print_json(rows)
        return DONE
    texts = [{k: "-" if v is None else v for k, v in row.items()} for row in rows]
    print_table({f: f"{{0[{f}]}}" for f in _FIELDS if f not in _ONLY_JSON}, texts)
    return DONE
