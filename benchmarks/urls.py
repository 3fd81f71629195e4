"""A file converted by URL, beside a download by fsspec that is converted then.

A web server on this machine, in a process of its own, takes its time for each request, and
sends so many bytes per second and connection. All ways take turns, in a folder in memory.
"""

import argparse
import os
import re
import statistics
import tempfile
import time
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context

import numpy as np

from .files import folder


class Handler(BaseHTTPRequestHandler):
    """Serves ranges of one file, slowly."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body):
        time.sleep(self.server.latency)
        if not self.path.endswith(os.path.basename(self.server.path)):
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        size = os.path.getsize(self.server.path)
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        begin, end = (int(part[1]), min(int(part[2]) + 1, size)) if part else (0, size)
        self.send_response(206 if part else 200)
        self.send_header("Content-Length", str(end - begin))
        self.send_header("ETag", '"1"')
        self.end_headers()
        if body:
            self.send(begin, end - begin)

    def send(self, begin, count):
        start, done, rate = time.perf_counter(), 0, self.server.rate
        with open(self.server.path, "rb") as file:
            file.seek(begin)
            while done < count:
                done += self.wfile.write(file.read(min(1 << 18, count - done)))
                if rate:
                    time.sleep(max(0, start + done / rate - time.perf_counter()))

    def log_message(self, *_):
        pass


def serve(path, latency, rate, port):
    """The server's process."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.path, server.latency, server.rate = path, latency, rate
        port.send(server.server_port)
        server.serve_forever()


@contextmanager
def served(path, latency, rate):
    """The URL of a file."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(path, latency, rate, theirs))
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}/{os.path.basename(path)}"
    finally:
        process.terminate()
        process.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=30, help="ms of each request")
    parser.add_argument("--rate", type=float, default=60, help="MB/s of a connection; 0: any")
    parser.add_argument("--layers", type=int, default=24, help="of 8 MiB and eight small tensors")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    import fsspec  # here: asv forks after the imports above, in an environment without it

    import shapejit as sj

    layers = range(args.layers)
    tensors = {f"{k}.bias{n}": np.ones(1024, np.float32) for k in layers for n in range(8)}
    tensors |= {f"{k}.weight": np.ones((1024, 2048), np.float32) for k in layers}
    rules, found = [("cast", ".*=bf16")], {}
    with ExitStack() as stack:
        home = tempfile.mkdtemp(dir=folder(stack))
        source, copy, target = (os.path.join(home, f"{n}.safetensors") for n in "abc")
        sj.save_file(tensors, source)
        url = stack.enter_context(served(source, args.latency / 1e3, args.rate * 1e6))

        def download():
            fsspec.filesystem("http").get_file(url, copy)
            sj.files.convert(copy, target, rules, proof=False)

        ways = {
            "on this machine": lambda: sj.files.convert(source, target, rules, proof=False),
            "by URL": lambda: sj.files.convert(url, target, rules, proof=False),
            "downloaded before": download,
        }
        for turn in range(args.rounds + 1):  # the first one loads kernels
            for way, run in ways.items():
                start = time.perf_counter()
                run()
                if turn:
                    found.setdefault(way, []).append(time.perf_counter() - start)
        size = os.path.getsize(source)
    for way, seconds in found.items():
        median = statistics.median(seconds)
        print(f"{way:17} {median:7.2f} s  {size / median / 1e6:7.0f} MB/s")


if __name__ == "__main__":
    main()
