import argparse

from .environment import build
from .shards import FILES, run

parser = argparse.ArgumentParser(prog="python -m arm64")
commands = parser.add_subparsers(dest="command", required=True)
commands.add_parser("build", help="build the environment, or bring it up to date")
runs = commands.add_parser("run", help="run files of tests")
runs.add_argument("files", nargs="*", default=FILES)
runs.add_argument("--processor", default="generic", help="what kernels are compiled for, to LLVM")

arguments = parser.parse_args()
if arguments.command == "build":
    build()
else:
    for name in arguments.files:
        run(name, arguments.processor)
