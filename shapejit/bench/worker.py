"""A peer's side of the measurement, run through `pipe` by any Python that has the peer and NumPy.

It imports nothing of shapejit, which that Python need not have.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module, metadata
from importlib.util import module_from_spec, spec_from_file_location
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

CHECKED = 4 * 1024 * 1024  # bytes of the result that the reply's checksum covers
UNCHECKED = -1  # the checksum of a result that is not to be compared

# A copy into memory that is there already; a function that allocates its result.
Copy = Callable[[], Any]


class UnableError(Exception):
    """This peer has no such copy."""


def _torch(job: dict[str, Any], source: Any, out: Any) -> Copy:
    torch = import_module("torch")
    torch.set_num_threads(job["threads"])
    if min(job["strides"], default=0) < 0:
        raise UnableError("torch has no negative strides")
    # What permute, slicing and expand give: torch's kernels see sizes and strides alone.
    flat = torch.from_numpy(source)
    view = flat.as_strided(job["shape"], job["strides"], job["offset"])
    if out is None:
        return lambda: view.contiguous()
    target = torch.from_numpy(out)
    return lambda: target.copy_(view)


def _onnxruntime(job: dict[str, Any], source: Any, out: Any) -> Copy:
    if job["axes"] is None:
        raise UnableError("only Transpose is measured")
    onnx, ort = import_module("onnx"), import_module("onnxruntime")
    if source.dtype.kind == "c":
        raise UnableError("onnxruntime transposes no complex numbers")
    kind = onnx.helper.np_dtype_to_tensor_dtype(source.dtype)
    value, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    graph = onnx.helper.make_graph(
        [node("Transpose", ["x"], ["y"], perm=job["axes"])],
        "transpose",
        [value("x", kind, job["base"])],
        [value("y", kind, job["shape"])],
    )
    opset = onnx.helper.make_opsetid("", 21)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = job["threads"]
    # Threads that wait busily would run beside whoever is measured next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    base = source.reshape(job["base"])
    if out is None:
        return lambda: session.run(None, {"x": base})[0]
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, base.dtype, base.shape, base.ctypes.data)
    binding.bind_output("y", "cpu", 0, out.dtype, out.shape, out.ctypes.data)

    def run(_arrays: Any = (source, out)) -> None:
        # The binding holds addresses: whoever holds the function keeps the arrays alive.
        session.run_with_iobinding(binding)

    return run


def _numpy(job: dict[str, Any], source: Any, out: Any) -> Copy:
    """NumPy as a peer: the tests' way to see the pipes work where no other is installed."""
    strides = [source.itemsize * s for s in job["strides"]]
    first = source[job["offset"] :]
    view = np.lib.stride_tricks.as_strided(first, job["shape"], strides)
    if out is None:
        return lambda: np.array(view, order="C")
    return lambda: np.copyto(out, view)


def _none(job: dict[str, Any], source: Any, out: Any) -> Copy:
    raise UnableError("it does not copy")


# By the names that they are imported by. Those that do not copy are in `peer_numbers`.
PEERS: dict[str, Callable[[dict[str, Any], Any, Any], Copy]] = {
    "torch": _torch,
    "onnxruntime": _onnxruntime,
    "numpy": _numpy,
    "compressed_tensors": _none,
    "gptqmodel": _none,
    "modelopt": _none,
    "transformers": _none,
    "bitsandbytes": _none,
    "gguf": _none,
}
_DISTRIBUTIONS = {"modelopt": "nvidia-modelopt"}


def _make(peer: str, job: dict[str, Any]) -> tuple[Copy, int]:
    """The copy of a case, and the checksum of what it made."""
    kind = np.dtype(job["dtype"])
    if job["shift"] % kind.itemsize:
        raise UnableError("its outputs are aligned to elements")
    count = prod(job["base"])
    words = np.arange(1, count * kind.itemsize // 8 + 2, dtype=np.uint64)
    words *= np.uint64(0x9E3779B97F4A7C15)  # the pattern of cases.py
    source = words.view(np.uint8)[: count * kind.itemsize].view(kind)
    out = None
    if not job["fresh"]:
        size = prod(job["shape"]) * kind.itemsize
        memory = np.empty(job["shift"] + size, np.uint8)
        memory.fill(0)
        out = memory[job["shift"] :].view(kind).reshape(job["shape"])
    copy = PEERS[peer](job, source, out)
    made = copy()
    result = np.asarray(made) if out is None else out
    return copy, zlib.crc32(result.reshape(-1).view(np.uint8)[:CHECKED].tobytes())


def _make_numbers(peer: str, job: dict[str, Any]) -> tuple[Copy, int]:
    """The same of a cast, a repacking or a decoding."""
    path = Path(__file__).with_name("peer_numbers.py")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    run, result = module.work(peer, job)
    run()
    if result is None:
        return run, UNCHECKED
    raw = result.reshape(-1).view(import_module("torch").uint8)
    return run, zlib.crc32(raw[:CHECKED].numpy().tobytes())


def answering(peer: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What answers requests: hello, take a case, run it so many times, drop it."""
    held: list[Copy] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if "calls" in request:
            copy = held[0]
            start = perf_counter()
            for _ in range(request["calls"]):
                copy()
            return {"seconds": perf_counter() - start}
        held.clear()  # before the next case needs the memory
        try:
            if "hello" in request:
                import_module(peer)
                if peer == "onnxruntime":
                    import_module("onnx")
                return {"version": metadata.version(_DISTRIBUTIONS.get(peer, peer))}
            if "job" in request:
                make = _make_numbers if "work" in request["job"] else _make
                copy, checksum = make(peer, request["job"])
                held.append(copy)
                return {"checksum": checksum}
        except UnableError as fault:
            return {"unable": str(fault)}
        except Exception as fault:
            # A peer's refusal is its answer: the others are measured without it.
            return {"unable": f"{type(fault).__name__}: {fault}"}
        return {}

    return answer
