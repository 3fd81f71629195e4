"""Reshapes that are views, of ndarrays and of Tensors, beside numpy.reshape."""

from .ratios import OURS, OverNumpy, TimeOfAThousandCalls, installed
from .tables import reshapes

VIEWS = {r.name: r for r in reshapes.RESHAPES if not r.copied}
KINDS = ("ndarray", "tensor")


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
        ours = x if kind == "ndarray" else sj.asarray(x)
        return {OURS: lambda: sj.reshape(ours, target), "numpy": lambda: x.reshape(target)}


class ViewsTime(TimeOfAThousandCalls):
    """Reshapes that are views"""

    of = Views
    params = Views.params[:6]
    version = "1"
