"""A/A: the same call as its own baseline. Its ratio would be 1; how far it is off is the noise."""

from . import layout, operations
from .ratios import OURS, Ratios

CALLS = {
    "view": lambda: layout.Views().ways("sliced/ndarray")[OURS],
    "small": lambda: operations.Small().ways("small/8x8/uint8")[OURS],
    "memcpy": lambda: operations.Ttc().ways("ttc/ttc-01/float32")["memcpy"],
    "rows": lambda: operations.Ttc().ways("ttc/ttc-04/float32")[OURS],
    "tiles": lambda: operations.Ttc().ways("ttc/ttc-01/float32")[OURS],
}


class Control(Ratios):
    """The same call twice: its own baseline"""

    params = list(CALLS)
    param_names = ("call",)
    baseline = "again"
    compared = ()
    version = "2"

    def setup_cache(self):
        return self.measured()

    def ways(self, call):
        # One pair of arrays: two would lie differently, which the ratios do not.
        way = CALLS[call]()
        return {OURS: way, "again": way}

    def track_over_itself(self, found, call):
        return self.over(found, call, "again")

    track_over_itself.unit = "time / its own"
