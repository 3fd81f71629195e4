"""Views of ndarrays and of Tensors, beside NumPy's."""

from types import SimpleNamespace

import numpy as np

from .ratios import OURS, OverNumpy, TimeOfAThousandCalls, installed
from .tables import reshapes

VIEWS = {r.name: r for r in reshapes.RESHAPES if not r.copied}
KINDS = ("ndarray", "tensor")
# NumPy 1 has not all names of the array API.
_NUMPY = SimpleNamespace(
    permute_dims=np.transpose,
    flip=np.flip,
    broadcast_to=np.broadcast_to,
    expand_dims=np.expand_dims,
    squeeze=np.squeeze,
    matrix_transpose=lambda x: np.swapaxes(x, -1, -2),
    moveaxis=np.moveaxis,
    transpose=np.transpose,
    unstack=lambda x, axis: tuple(np.moveaxis(x, axis, 0)),
    split=np.split,
    broadcast_arrays=np.broadcast_arrays,
    broadcast_shapes=np.broadcast_shapes,
)


def _ours(sj, x, kind):
    return x if kind == "ndarray" else sj.asarray(x)


class Views(OverNumpy):
    """Reshapes that are views"""

    params = [f"{name}/{kind}" for name in VIEWS for kind in KINDS]
    compared = params[::3]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        name, kind = case.split("/")
        sj = installed("reshape", "asarray")
        x, target = VIEWS[name].view(), VIEWS[name].target
        ours = _ours(sj, x, kind)
        return {OURS: lambda: sj.reshape(ours, target), "numpy": lambda: x.reshape(target)}


LOOKS = {
    "permute_dims": lambda m, x: m.permute_dims(x, (2, 0, 1)),
    "flip": lambda m, x: m.flip(x, axis=1),
    "broadcast_to": lambda m, x: m.broadcast_to(x, (8, 16, 32, 64)),
    "expand_dims": lambda m, x: m.expand_dims(x, axis=1),
    "squeeze": lambda m, x: m.squeeze(x[:1], axis=0),
    "matrix_transpose": lambda m, x: m.matrix_transpose(x),
    "moveaxis": lambda m, x: m.moveaxis(x, 0, -1),
    "transpose": lambda m, x: m.transpose(x, (2, 0, 1)),
    "unstack": lambda m, x: m.unstack(x, axis=1),
    "split": lambda m, x: m.split(x, 4, axis=2),
    "broadcast_arrays": lambda m, x: m.broadcast_arrays(x, x[:1]),
    "broadcast_shapes": lambda m, x: m.broadcast_shapes(x.shape, (8, 1, 1, 1)),
}


class Looks(OverNumpy):
    """Views by the other functions of the array API"""

    params = [f"{name}/{kind}" for name in LOOKS for kind in KINDS]
    compared = params[::3]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        name, kind = case.split("/")
        sj, look, x = installed(name, "asarray"), LOOKS[name], np.zeros((16, 32, 64), np.float32)
        ours = _ours(sj, x, kind)
        return {OURS: lambda: look(sj, ours), "numpy": lambda: look(_NUMPY, x)}


class ViewsTime(TimeOfAThousandCalls):
    """Reshapes that are views"""

    of = Views
    params = Views.params[:6]
    version = "1"
