"""Shapes without data."""

import numpy as np

import shapejit as sj
from shapejit.resolver import target_shape

REQUESTS = {
    "onnx": lambda: sj.onnx.request([0, 0, -1, 64]),
    "openvino": lambda: sj.openvino.request([0, 0, -1, 64], special_zero=True),
    "onednn": lambda: sj.onednn.request([0, 0, -1, 64], special_zero=True),
}


class Resolve:
    params = list(REQUESTS)
    param_names = ("dialect",)
    version = "1"

    def setup(self, dialect):
        self.make = REQUESTS[dialect]
        self.request = self.make()

    def time_request(self, dialect):
        self.make()

    def time_resolve(self, dialect):
        sj.resolve((8, 2048, 2048), self.request)

    def time_resolve_a_shape_never_seen(self, dialect):
        target_shape.__wrapped__((8, 2048, 2048), self.request)


class Shape:
    version = "1"

    def setup(self):
        self.data = np.zeros((8, 16, 32), np.float32)

    def time_shape(self):
        sj.onnx.shape(self.data, start=-2)
