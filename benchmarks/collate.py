"""collate_fn beside torch's default_collate: 256 images of 224 x 224, here and in two workers.

    python -m benchmarks.collate

All take turns, loaders with workers epoch by epoch; the median of the rounds counts.
Where images are normalised, torch does it per image, in the dataset, or to the whole batch.
"""

import argparse
import statistics
import sys
import time

COUNT, SIDE, BATCHES = 256, 224, 8


def images():
    """uint8, height x width x channels, and a label."""
    import numpy as np

    rng = np.random.default_rng(0)
    return [(x, i) for i, x in enumerate(rng.integers(0, 256, (COUNT, SIDE, SIDE, 3), np.uint8))]


def by_torch(image):
    """Channels first, and between 0 and 1."""
    import torch

    return torch.from_numpy(image).permute(2, 0, 1).to(torch.float32).mul_(1 / 255)


def batch_by_torch(samples):
    """The same for a whole batch."""
    import torch
    from torch.utils.data import default_collate

    batch, labels = default_collate(samples)
    rows = batch.permute(0, 3, 1, 2)
    return rows.to(torch.float32, memory_format=torch.contiguous_format).mul_(1 / 255), labels


class Images:
    """A data set of `BATCHES` batches."""

    def __init__(self, samples, each=None):
        self.samples, self.each = samples, each

    def __len__(self):
        return COUNT * BATCHES

    def __getitem__(self, i):
        image, label = self.samples[i % COUNT]
        return (self.each(image) if self.each else image), label


def ways():
    """By name: the collate function, and what the data set does to each image."""
    from torch.utils.data import default_collate

    import shapejit as sj
    from shapejit.adapters.torch import Collate, collate_fn

    def normalised(t):
        return t.permute_dims((2, 0, 1)).dequantize(1 / 255)

    load = sj.plan((SIDE, SIDE, 3), "uint8", normalised)
    return {
        "stacked": (collate_fn, None),
        "stacked, torch": (default_collate, None),
        "normalised": (Collate(load), None),
        "normalised, torch per image": (default_collate, by_torch),
        "normalised, torch per batch": (batch_by_torch, None),
    }


def interleaved(calls, rounds):
    """Median seconds of each call, after one round that is not counted."""
    seconds = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(found[1:]) for name, found in seconds.items()}


def here(rounds):
    """Milliseconds per batch in the main process."""
    samples = images()

    def call(collate, each):
        made = [(each(x), i) for x, i in samples] if each else samples
        return collate(made)

    calls = {name: lambda way=way: call(*way) for name, way in ways().items()}
    return {name: 1e3 * s for name, s in interleaved(calls, rounds).items()}


def in_workers(rounds):
    """Milliseconds per batch of a loader with two workers; a number of each page is read."""
    from torch.utils.data import DataLoader

    samples, loaders = images(), {}
    for name, (collate, each) in ways().items():
        settings = {"num_workers": 2, "persistent_workers": True, "collate_fn": collate}
        loaders[name] = DataLoader(Images(samples, each), COUNT, **settings)

    def epoch(loader):
        return sum(int(batch.reshape(-1)[::1024].sum()) for batch, _ in loader)

    calls = {name: lambda loader=loader: epoch(loader) for name, loader in loaders.items()}
    return {name: 1e3 * s / BATCHES for name, s in interleaved(calls, rounds).items()}


def main(argv=None):
    """0 measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.collate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args(argv).rounds
    for where, found in (("main process", here(rounds)), ("2 workers", in_workers(rounds))):
        print(f"{where}, {COUNT} images of {SIDE} x {SIDE} x 3:")
        for name, ms in found.items():
            beside = "" if "torch" in name else "  (ours)"
            print(f"  {name:28} {ms:7.1f} ms a batch{beside}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
