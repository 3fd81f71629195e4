"""Make a checkpoint shaped like a published one: python -m benchmarks.checkpoints KIND FOLDER."""

import argparse

from shapejit.bench.checkpoints import KINDS, make
from shapejit.conversion import nbytes_of


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder")
    parser.add_argument("--size", default="4GiB", help="of its tensors; 4GiB if not given")
    args = parser.parse_args()
    size = make(args.kind, args.folder, nbytes_of(args.size))
    print(f"{args.folder}: {size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
