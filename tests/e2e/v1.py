# SPDX-License-Identifier: Apache-2.0
"""The v1 wire in both roles, written from its published layout and independent of the library's codec.

Request, 48 bytes: magic u32, version u16, opcode u8, flags u8, request id, registration id, address,
length, reserved (u64 each). Response, 32 bytes: magic u32, version u16, status u16, request id,
committed bytes, reserved (u64 each). All big-endian. A WRITE's payload follows its request, a READ's
follows its OK response.
"""
import http.server
import json
import random
import socket
import struct
import threading

MAGIC, VERSION, READ, WRITE = 0x4D435450, 1, 1, 2
OK, BAD_VERSION, BAD_OPCODE, BAD_LENGTH, RANGE, PERMISSION, STALE, SHUTTING_DOWN, INTERNAL = range(9)
REQUEST, RESPONSE = struct.Struct(">IHBBQQQQQ"), struct.Struct(">IHHQQQ")
TRANSPORT_ID = 13
CLOSED = "closed"


def take(sock, count):
    """Exactly so many bytes; EOFError if the stream ends before."""
    out = bytearray()
    while len(out) < count:
        part = sock.recv(min(count - len(out), 1 << 20))
        if not part:
            raise EOFError("stream ended after %d of %d bytes" % (len(out), count))
        out += part
    return bytes(out)


def pattern(seed, length):
    """Bytes that depend on their position; the same for the same seed."""
    return random.Random(seed).randbytes(length)


class Client:
    """One connection to a v1 server."""

    def __init__(self, host, port, timeout=10):
        self.sock = socket.create_connection((host, port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.next_id = 1

    def send_request(self, opcode, registration, address, length, request_id=None, magic=MAGIC, version=VERSION,
                     flags=0, reserved=0, body=b""):
        if request_id is None:
            request_id, self.next_id = self.next_id, self.next_id + 1
        head = REQUEST.pack(magic, version, opcode, flags, request_id, registration, address, length, reserved)
        self.sock.sendall(head + body)
        return request_id

    def response(self):
        """(status, request id, committed bytes); checks what holds for every response."""
        magic, version, status, request_id, committed, reserved = RESPONSE.unpack(take(self.sock, RESPONSE.size))
        assert (magic, version, reserved) == (MAGIC, VERSION, 0), (hex(magic), version, reserved)
        assert status == OK or committed == 0, (status, committed)
        return status, request_id, committed

    def read(self, registration, address, length):
        request_id = self.send_request(READ, registration, address, length)
        assert self.response() == (OK, request_id, length)
        return take(self.sock, length)

    def write(self, registration, address, data):
        request_id = self.send_request(WRITE, registration, address, len(data), body=data)
        assert self.response() == (OK, request_id, len(data))

    def ends(self, timeout=5):
        """True if the server closes the stream without another byte."""
        self.sock.settimeout(timeout)
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True
        except socket.timeout:
            return False

    def reset(self):
        """Close with a reset in place of an orderly end."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Buffer:
    """A registered range of the server: bytes at an address of our choice."""

    def __init__(self, address, length, registration, writable=True):
        self.address, self.registration, self.writable = address, registration, writable
        self.data = bytearray(length)

    def covers(self, address, length):
        return self.address <= address and address + length <= self.address + len(self.data)


class Server:
    """A v1 server with a control address that shows the document a ferry reads to find it.

    An instance's `answer` may be replaced to misbehave: it gets (status, request id, committed) and
    returns the bytes to send, or None to send nothing and close. `refuse_with` is a status that every
    request is refused with; `cut_reads_at` ends the stream after so many bytes of a READ's payload. `by_rail` keeps what was asked
    for, by (source, destination) address of the connection.
    """

    @staticmethod
    def answer(status, request_id, committed):
        return RESPONSE.pack(MAGIC, VERSION, status, request_id, committed, 0)

    def __init__(self, buffers, max_transfer_bytes=1 << 30, host="127.0.0.1", rails=()):
        self.buffers, self.max_transfer_bytes = buffers, max_transfer_bytes
        self.incarnation = "%032x" % random.SystemRandom().getrandbits(128)
        self.refuse_with, self.documents_shown, self.cut_reads_at = OK, 0, None
        self.requests, self.connections, self.lock = [], 0, threading.Lock()
        self.open = []
        # With rails it listens everywhere, as published, and shows each of them as an endpoint.
        self.rails, self.by_rail = list(rails), {}
        self.listener = socket.create_server(("0.0.0.0" if rails else host, 0))
        self.host, self.port = host, self.listener.getsockname()[1]
        self.closing = False
        threading.Thread(target=self._accept, daemon=True).start()
        self._serve_control()

    # Data.

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.connections += 1
                self.open.append(sock)
            threading.Thread(target=self._session, args=(sock,), daemon=True).start()

    def _session(self, sock):
        try:
            while self._one(sock):
                pass
        except (EOFError, OSError):
            pass
        finally:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()

    def _one(self, sock):
        """Serve one request; False when the stream has to end."""
        magic, version, opcode, flags, request_id, registration, address, length, reserved = \
            REQUEST.unpack(take(sock, REQUEST.size))
        undecodable = (INTERNAL if magic != MAGIC else BAD_VERSION if version != VERSION
                       else INTERNAL if flags or reserved else BAD_OPCODE if opcode not in (READ, WRITE)
                       else BAD_LENGTH if length == 0 or address + length > (1 << 64) - 1 else OK)
        if undecodable:
            return self._reply(sock, undecodable, 0, 0)
        with self.lock:
            self.requests.append((opcode, request_id, address, length))
            self.by_rail.setdefault((sock.getpeername()[0], sock.getsockname()[0]), []).append(
                (opcode, address, length))
        if length > self.max_transfer_bytes:
            return self._reply(sock, BAD_LENGTH, request_id, 0)
        status, buffer = self._lease(opcode, registration, address, length)
        if opcode == WRITE:
            body = take(sock, length)
            if status == OK:
                buffer.data[address - buffer.address:address - buffer.address + length] = body
        if status != OK:
            return self._reply(sock, status, request_id, 0)
        if not self._reply(sock, OK, request_id, length):
            return False
        if opcode == READ:
            whole = memoryview(buffer.data)[address - buffer.address:address - buffer.address + length]
            sock.sendall(whole[:self.cut_reads_at])
            return self.cut_reads_at is None
        return True

    def _lease(self, opcode, registration, address, length):
        if self.refuse_with != OK:
            return self.refuse_with, None
        for buffer in self.buffers:
            if buffer.covers(address, length):
                if buffer.registration != registration:
                    return STALE, None
                if opcode == WRITE and not buffer.writable:
                    return PERMISSION, None
                return OK, buffer
        return RANGE, None

    def _reply(self, sock, status, request_id, committed):
        data = self.answer(status, request_id, committed)
        if data is None:
            return False
        sock.sendall(data)
        return status == OK

    # Description.

    def document(self):
        """The segment document in the published shape, without any key of ours."""
        def attribute(buffer):
            return json.dumps({"permission": "global_read_write" if buffer.writable else "global_read_only",
                               "protocol": "tent_hp_tcp", "registration_id": buffer.registration, "version": 1})
        return {
            "name": self.name, "type": "memory", "machine_id": "00000000-test:v1", "rpc_server_addr": self.name,
            "detail": {
                "device_attrs": {}, "devices": [], "topology": json.dumps({"nics": [], "mems": []}),
                "buffers": [{
                    "addr": b.address, "length": len(b.data), "location": "cpu:0", "transports": [TRANSPORT_ID],
                    "regions": [{"size": len(b.data), "location": "cpu:0"}],
                    "transport_attrs": [[TRANSPORT_ID, attribute(b)]], "rkey": [], "shm_path": "",
                    "mnnvl_handle": "", "internal": False} for b in self.buffers],
                "transport_attrs": [[TRANSPORT_ID, json.dumps({
                    "endpoints": [{"host": h, "port": self.port} for h in self.rails or [self.host]],
                    "incarnation": self.incarnation, "max_transfer_bytes": self.max_transfer_bytes,
                    "protocol": "tent_hp_tcp", "version": 1})]],
            },
        }

    def _serve_control(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                known = self.path.split("?")[0] == "/v1/segment"
                outer.documents_shown += known
                body = json.dumps(outer.document() if known else {"error": "not here"}).encode()
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.control = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.control.daemon_threads = True
        self.name = "127.0.0.1:%d" % self.control.server_address[1]
        threading.Thread(target=self.control.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.control.shutdown()
        self.control.server_close()
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        with self.lock:
            for sock in self.open:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
