#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A metadata store for tests: a key-value server over HTTP, standard library only.

GET, PUT and DELETE on any path with ?key=KEY. The port is printed on the first line. It ends on
SIGTERM, or when its standard input ends if --until-eof is given, so that a test that dies takes it
along.

GET  /stats    {"get": N, "put": N, "delete": N, "keys": [...], "bytes": N}
POST /control  change the behaviour while it runs: a JSON object with any of
               delay_ms  wait before answering
               status    answer every request on a key with this code (0: normally)
               limit     answer 413 to a larger body (0: no limit)
               hang      never answer
               clear     forget all keys
"""

import argparse
import json
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

BODY_MAX = 256 << 20


class Store:
    """What all handlers share."""

    def __init__(self, options):
        self.lock = threading.Lock()
        self.values = {}
        self.counts = {"get": 0, "put": 0, "delete": 0}
        self.delay_ms = options.delay_ms
        self.status = options.status
        self.limit = options.limit
        self.hang = False
        self.closing = threading.Event()

    def control(self, wish):
        with self.lock:
            if wish.pop("clear", False):
                self.values.clear()
            for name, value in wish.items():
                if name not in ("delay_ms", "status", "limit", "hang"):
                    raise ValueError(name)
                setattr(self, name, value)

    def stats(self):
        with self.lock:
            size = sum(len(value) for value in self.values.values())
            return {**self.counts, "keys": sorted(self.values), "bytes": size}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store = None

    def log_message(self, *args):
        pass

    def answer(self, code, body=b"", kind="application/json"):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def key(self):
        values = parse_qs(urlsplit(self.path).query, keep_blank_values=True).get("key", [])
        return values[0] if len(values) == 1 else None

    def body_len(self):
        return int(self.headers.get("Content-Length", "0"))

    def refuses(self, verb):
        """Count the request and apply what was wished for. True: it has been answered."""
        store = self.store
        with store.lock:
            store.counts[verb] += 1
            delay_ms, status, hang = store.delay_ms, store.status, store.hang
        if hang:
            store.closing.wait()
            self.close_connection = True
            return True
        if delay_ms:
            time.sleep(delay_ms / 1000)
        if self.key() is None:
            self.answer(400, b'{"error": "expected ?key=KEY"}')
            return True
        if status:
            self.close_connection = True
            self.answer(status, b'{"error": "as wished"}')
            return True
        return False

    def do_GET(self):
        if urlsplit(self.path).path == "/stats":
            self.answer(200, json.dumps(self.store.stats()).encode())
            return
        if self.refuses("get"):
            return
        with self.store.lock:
            value = self.store.values.get(self.key())
        if value is None:
            self.answer(404, b'{"error": "no such key"}')
        else:
            self.answer(200, value)

    def handle_expect_100(self):
        """Refuse a large body before it is sent."""
        with self.store.lock:
            limit = self.store.limit
        if limit and self.body_len() > limit:
            self.close_connection = True
            self.answer(413)
            with self.store.lock:
                self.store.counts["put"] += 1
            return False
        return super().handle_expect_100()

    def do_PUT(self):
        if self.body_len() > BODY_MAX:
            self.close_connection = True
            self.answer(413)
            return
        value = self.rfile.read(self.body_len())
        if self.refuses("put"):
            return
        with self.store.lock:
            limit = self.store.limit
            if not limit or len(value) <= limit:
                self.store.values[self.key()] = value
        self.answer(413 if limit and len(value) > limit else 200)

    def do_DELETE(self):
        if self.refuses("delete"):
            return
        with self.store.lock:
            existed = self.store.values.pop(self.key(), None) is not None
        self.answer(200 if existed else 404)

    def do_POST(self):
        try:
            if urlsplit(self.path).path != "/control":
                raise ValueError(self.path)
            self.store.control(json.loads(self.rfile.read(self.body_len())))
            self.answer(200)
        except ValueError as error:
            self.answer(400, json.dumps({"error": str(error)}).encode())


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay-ms", type=int, default=0)
    parser.add_argument("--status", type=int, default=0)
    parser.add_argument("--limit", type=int, default=0, metavar="BYTES")
    parser.add_argument("--until-eof", action="store_true", help="end with standard input")
    options = parser.parse_args()

    Handler.store = Store(options)
    if ":" in options.host:
        Server.address_family = socket.AF_INET6
    server = Server((options.host, options.port), Handler)
    print(server.server_address[1], flush=True)

    def stop(*_):
        Handler.store.closing.set()
        threading.Thread(target=server.shutdown, daemon=True).start()

    def wait_for_eof():
        while sys.stdin.buffer.read(4096):
            pass
        stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if options.until_eof:
        threading.Thread(target=wait_for_eof, daemon=True).start()
    server.serve_forever(poll_interval=0.05)
    server.server_close()


if __name__ == "__main__":
    main()
