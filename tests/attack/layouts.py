"""Layout operators with invalid and unusual arguments: views, or one of the usual errors."""

import numpy as np

import shapejit as sj

from .hostile import REFUSED, some, tried
from .tokens import sequence, token


def given(random, rank):
    """Often what may fit; else a few ints, and a token or two among them that may not."""
    if random.random() < 0.6:
        axis = random.randint(-rank, max(rank - 1, 0))
        return random.choice([axis, [axis], None, random.sample(range(rank), rank), [1, 1], "DCR"])
    items = [random.randint(-rank - 1, rank + 1) for _ in range(random.randint(0, 3))]
    for _ in range(random.choice([0, 1, 1])):
        items.insert(random.randint(0, len(items)), token(random))
    if random.random() < 0.2:
        return token(random)
    return sequence(random, items)


def case(random):
    k = some(random)
    x, rank = k.x, k.x.ndim
    name, call = random.choice(list(CALLS.items()))
    opset = random.choice([1, 10, 13, 18, *[25] * 9, token(random)])
    arguments = [given(random, rank) for _ in range(4)]
    made = tried(lambda: call(x, opset, *arguments))
    for y in made if isinstance(made, tuple) else (made,):
        assert y is REFUSED or type(y) is type(x), name
    k.memory.check_unchanged()


# What makes no more elements than there are, or views of them: the rest may be as large as asked.
CALLS = {
    "transpose": lambda x, o, a, *_: sj.onnx.transpose(x, perm=a, opset=o),
    "squeeze": lambda x, o, a, *_: sj.onnx.squeeze(x, a, opset=o),
    "unsqueeze": lambda x, o, a, *_: sj.onnx.unsqueeze(x, a, opset=o),
    "flatten": lambda x, o, a, *_: sj.onnx.flatten(x, axis=a, opset=o),
    "expand": lambda x, o, a, *_: sj.onnx.expand(x, a, opset=o),
    "slice": lambda x, o, a, b, c, d: sj.onnx.slice(x, a, b, c, d, opset=o),
    "split": lambda x, o, a, b, c, _: sj.onnx.split(x, a, axis=b, num_outputs=c, opset=o),
    "split in parts": lambda x, o, a, b, *_: sj.onnx.split(x, axis=a, num_outputs=b, opset=o),
    "concat": lambda x, o, a, *_: sj.onnx.concat([x, x], axis=a, opset=o),
    "gather": lambda x, o, a, b, *_: sj.onnx.gather(x, a, axis=b, opset=o),
    "take": lambda x, o, a, b, *_: sj.take(x, a, axis=b),
    "depth_to_space": lambda x, o, a, b, *_: sj.onnx.depth_to_space(x, blocksize=a, mode=b),
    "pad": lambda x, o, a, b, c, _: sj.onnx.pad(x, [0] * 2 * x.ndim, a, mode=b, opset=o),
    "axes of a pad": lambda x, o, a, *_: sj.onnx.pad(x, [0, 0], axes=a, opset=o),
    "axes of a crop": lambda x, o, a, b, *_: sj.onnx.center_crop_pad(x, [1], axes=a, opset=o),
    "openvino.transpose": lambda x, o, a, *_: sj.openvino.transpose(x, a),
    "openvino.squeeze": lambda x, o, a, *_: sj.openvino.squeeze(x, a),
    "openvino.unsqueeze": lambda x, o, a, *_: sj.openvino.unsqueeze(x, a),
    "openvino.broadcast": lambda x, o, a, b, *_: sj.openvino.broadcast(x, a, b, mode="explicit"),
    "openvino.split": lambda x, o, a, b, *_: sj.openvino.split(x, a, b),
    "openvino.concat": lambda x, o, a, *_: sj.openvino.concat([x, np.asarray(x)], a),
}
