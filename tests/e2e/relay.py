# SPDX-License-Identifier: Apache-2.0
"""A relay that stands between two peers and forwards, damages, cuts, delays or records their data.

RelayedPeer pretends to be a peer: its control address answers with the real peer's document, in which
only the data port is replaced by the relay's. What flows is split into headers and payload by the
published layouts, so that a filter can damage payload alone.
"""
import http.client
import http.server
import json
import random
import socket
import struct
import threading
import time

V1_MAGIC, FERRY_MAGIC = b"MCTP", b"FRRY"
V1_REQUEST, V1_RESPONSE, FERRY_FIXED = 48, 32, 64
FERRY_READ, FERRY_WRITE, FERRY_READ_REPLY = 3, 4, 5


class Splitter:
    """Cuts one direction of a connection into (is_payload, bytes) pieces; keeps what is incomplete."""

    def __init__(self, from_initiator, reads):
        self.from_initiator = from_initiator
        self.reads = reads  # v1: ids of READs whose answers carry payload
        self.held = b""
        self.payload_left = 0

    def feed(self, data):
        self.held += data
        while self.held:
            if self.payload_left:
                piece = self.held[:self.payload_left]
                self.held = self.held[len(piece):]
                self.payload_left -= len(piece)
                yield True, piece
                continue
            size = self._header_size()
            if size is None or len(self.held) < size:
                return
            header, self.held = self.held[:size], self.held[size:]
            self.payload_left = self._payload_after(header)
            yield False, header

    def _header_size(self):
        if len(self.held) < 8:
            return None
        if self.held[:4] == V1_MAGIC:
            return V1_REQUEST if self.from_initiator else V1_RESPONSE
        if self.held[:4] == FERRY_MAGIC:
            return struct.unpack(">H", self.held[6:8])[0]
        return len(self.held)  # nothing we know: pass it on

    def _payload_after(self, header):
        if header[:4] == FERRY_MAGIC:
            kind, length = header[5], struct.unpack(">Q", header[40:48])[0]
            return length if kind in (FERRY_WRITE, FERRY_READ_REPLY) else 0
        if header[:4] != V1_MAGIC:
            return 0
        if self.from_initiator:
            opcode, identifier, length = header[6], header[8:16], struct.unpack(">Q", header[32:40])[0]
            if opcode == 1:
                self.reads.add(identifier)
            return length if opcode == 2 else 0
        status, identifier = struct.unpack(">H", header[6:8])[0], header[8:16]
        if status == 0 and identifier in self.reads:
            return struct.unpack(">Q", header[16:24])[0]
        return 0


class Forward:
    """The plain filter and the base of the others: both hooks may return other bytes, of any length."""

    def header(self, data):
        return data

    def payload(self, data):
        return data

    def after(self, _total):
        """Called with the bytes passed on so far; may sleep, or raise ConnectionAbortedError."""


class FlipPayload(Forward):
    """Flips one bit of about one payload byte in a thousand."""

    def __init__(self, one_in=1000, seed=1):
        self.random, self.one_in, self.flipped = random.Random(seed), one_in, 0

    def payload(self, data):
        damaged = bytearray(data)
        at = self.random.randrange(self.one_in)
        while at < len(damaged):
            damaged[at] ^= 1 << self.random.randrange(8)
            self.flipped += 1
            at += 1 + self.random.randrange(2 * self.one_in)
        return bytes(damaged)


class SwapPieces(Forward):
    """Swaps two neighbouring pieces of equal size in every payload run that holds both."""

    def __init__(self, piece=512):
        self.piece, self.swapped = piece, 0

    def payload(self, data):
        if len(data) < 2 * self.piece:
            return data
        self.swapped += 1
        first, second = data[:self.piece], data[self.piece:2 * self.piece]
        return second + first + data[2 * self.piece:]


class CutAfter(Forward):
    """Breaks the connection once so many bytes have passed in one direction."""

    def __init__(self, count):
        self.count = count

    def after(self, total):
        if total >= self.count:
            raise ConnectionAbortedError("cut after %d bytes" % total)


class Delay(Forward):
    """Holds each read of the relay for a while."""

    def __init__(self, seconds):
        self.seconds = seconds

    def after(self, _total):
        time.sleep(self.seconds)


class Record(Forward):
    """Keeps the headers and counts the payload."""

    def __init__(self):
        self.headers, self.payload_bytes = [], 0

    def header(self, data):
        self.headers.append(data)
        return data

    def payload(self, data):
        self.payload_bytes += len(data)
        return data


class Relay:
    """Listens on loopback and passes each connection on to one address.

    make_filter makes the filter of each direction; make_back, if given, the one of what the target says.
    A filter learns the connection's source and destination address as its `path`, and its two sockets as `near` (to
    the initiator) and `far`.
    """

    def __init__(self, target, make_filter=Forward, make_back=None, family=socket.AF_INET, host=None):
        self.target, self.make_filter, self.make_back = target, make_filter, make_back or make_filter
        self.filters, self.sockets, self.lock = [], [], threading.Lock()
        host = host or ("::1" if family == socket.AF_INET6 else "127.0.0.1")
        self.listener = socket.create_server((host, 0), family=family)
        self.host, self.port = self.listener.getsockname()[:2]
        self.closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while not self.closing:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.target, timeout=5)
            except OSError:
                if self.closing:
                    return
                continue
            reads, path = set(), (near.getpeername()[0], near.getsockname()[0])
            for one in (near, far):
                one.settimeout(None)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.sockets += [near, far]
            for source, sink, forward in ((near, far, True), (far, near, False)):
                used = self.make_filter() if forward else self.make_back()
                used.path, used.near, used.far = path, near, far
                self.filters.append(used)
                threading.Thread(target=self._pump, args=(source, sink, used, Splitter(forward, reads)),
                                 daemon=True).start()

    def _pump(self, source, sink, used, splitter):
        total = 0
        try:
            while True:
                data = source.recv(1 << 18)
                if not data:
                    break
                for is_payload, piece in splitter.feed(data):
                    sink.sendall(used.payload(piece) if is_payload else used.header(piece))
                total += len(data)
                used.after(total)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            for one in (source, sink):
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def connections(self):
        with self.lock:
            return len(self.sockets) // 2

    def cut(self):
        """Break every connection now."""
        with self.lock:
            for one in self.sockets:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                one.close()
            self.sockets.clear()

    def close(self):
        self.closing = True
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        self.cut()


class RelayedPeer:
    """A control address that shows a peer's document with the relays' data ports in it, one relay a rail."""

    def __init__(self, name, make_filter=Forward, make_back=None):
        self.upstream = name
        document = json.loads(self._fetch("GET", "/v1/segment")[1])
        self.relays = [Relay((e["host"], e["port"]), make_filter, make_back, host=e["host"])
                       for e in self._attribute(document)["endpoints"]]
        self.relay = self.relays[0]
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                self._answer("GET", None)

            def do_POST(self):
                self._answer("POST", self.rfile.read(int(self.headers.get("Content-Length", "0"))))

            def _answer(self, method, body):
                try:
                    status, reply = outer._fetch(method, self.path, body, dict(self.headers))
                except OSError as error:
                    status, reply = 502, json.dumps({"error": str(error)}).encode()
                if self.path == "/v1/segment" and status == 200:
                    reply = outer.rewrite(reply)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.name = "127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def filters(self):
        return [f for one in self.relays for f in one.filters]

    def _attribute(self, document):
        for _, text in document["detail"]["transport_attrs"]:
            if "tent_hp_tcp" in text:
                return json.loads(text)
        raise AssertionError("the peer publishes no hp_tcp")

    def rewrite(self, reply):
        document = json.loads(reply)
        document["name"] = document["rpc_server_addr"] = self.name
        for pair in document["detail"]["transport_attrs"]:
            if "tent_hp_tcp" in pair[1]:
                attribute = json.loads(pair[1])
                attribute["endpoints"] = [{"host": r.host, "port": r.port} for r in self.relays]
                pair[1] = json.dumps(attribute)
        return json.dumps(document).encode()

    def _fetch(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.upstream, timeout=5)
        try:
            kept = {k: v for k, v in (headers or {}).items() if k.lower() in ("content-type", "x-ferry", "accept")}
            connection.request(method, path, body, kept)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        for one in self.relays:
            one.close()
