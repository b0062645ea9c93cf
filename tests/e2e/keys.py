# SPDX-License-Identifier: Apache-2.0
"""Greetings and control requests with a key, written from docs/design/wire.md and control.md with
Python's hmac, independent of the library.

A transcript is SHA-256 of its purpose, then of itself and of the SHA-256 of each piece; a proof is
HMAC-SHA-256 over the prover's role and the transcript.
"""
import hashlib
import hmac
import http.client
import json
import os
import socket
import struct

import v1

MAGIC, VERSION = 0x46525259, 1
HELLO, HELLO_REPLY, READ, WRITE, READ_REPLY, WRITE_REPLY, CHALLENGE, PROOF = 1, 2, 3, 4, 5, 6, 11, 12
OK, BAD_REQUEST, AUTH = 0, 1, 12
FEATURE_AUTH = 1 << 8
INITIATOR, TARGET = b"ferry initiator", b"ferry target"
FIXED = struct.Struct(">IBBHIHBBQQQQQII")
BODY = struct.Struct(">16sIIQQQQ16s")


def digest(data):
    return hashlib.sha256(data).digest()


def transcript(purpose, *pieces):
    state = digest(purpose)
    for piece in pieces:
        state = digest(state + digest(piece))
    return state


def proof_of(key, role, state):
    return hmac.new(key, role + state, hashlib.sha256).digest()


def make_key(folder, name="key", mode=0o600):
    """A new key: (path of its file, its bytes)."""
    path, key = os.path.join(str(folder), name), os.urandom(32)
    with open(path, "w", encoding="ascii") as f:
        f.write(key.hex() + "\n")
    os.chmod(path, mode)
    return path, key


def use(path):
    """The arguments with which a command takes a key file."""
    return "--set", "auth_key_file=" + path


def extension(kind, value):
    return struct.pack(">HHI", kind, len(value), 0) + value + bytes(-len(value) % 8)


def frame(kind, body=b"", status=0, ident=0, registration=0, address=0, length=0):
    return FIXED.pack(MAGIC, VERSION, kind, FIXED.size + len(body), 0, status, 0, 0, ident, registration, address,
                      length, 0, 0, 0) + body


def hello(features=FEATURE_AUTH, nonce=None, incarnation=b"i" * 16):
    return frame(HELLO, extension(1, BODY.pack(incarnation, 0, 1, features, 0, 1 << 30, 0,
                                               os.urandom(16) if nonce is None else nonce)))


def proof_frame(proof):
    return frame(PROOF, extension(8, proof))


class Frame:
    """A frame as received."""

    def __init__(self, wire):
        self.wire = wire
        fields = FIXED.unpack(wire[:FIXED.size])
        assert fields[:2] == (MAGIC, VERSION), wire[:64].hex()
        self.kind, self.status, self.ident, self.length = fields[2], fields[5], fields[8], fields[11]
        self.value = wire[FIXED.size + 8:]


class Greeting:
    """One connection to a data port, step by step."""

    def __init__(self, host, port, timeout=20):
        self.sock = socket.create_connection((host, port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.said = []

    def send(self, data):
        self.sock.sendall(data)

    def take(self):
        """The next frame; EOFError at the end of the stream."""
        head = v1.take(self.sock, FIXED.size)
        return Frame(head + v1.take(self.sock, struct.unpack(">H", head[6:8])[0] - FIXED.size))

    def challenge(self, data=None):
        """Say HELLO and take the challenge."""
        self.said = [hello() if data is None else data]
        self.send(self.said[0])
        got = self.take()
        assert got.kind == CHALLENGE, (got.kind, got.status)
        self.said.append(got.wire)
        return got

    def prove(self, key):
        """Prove the key, and check that the target does; the HELLO_REPLY."""
        mine = proof_frame(proof_of(key, INITIATOR, transcript(b"ferry greeting 1", *self.said)))
        self.send(mine)
        reply = self.take()
        assert (reply.kind, reply.status) == (HELLO_REPLY, OK), (reply.kind, reply.status)
        theirs = self.take()
        assert theirs.kind == PROOF
        expected = proof_of(key, TARGET, transcript(b"ferry greeting 1", *self.said, mine, reply.wire))
        assert theirs.value == expected, "the target does not prove the key"
        return reply

    def read(self, registration, address, length, ident=1):
        self.send(frame(READ, ident=ident, registration=registration, address=address, length=length))
        reply = self.take()
        assert (reply.kind, reply.status, reply.ident, reply.length) == (READ_REPLY, OK, ident, length)
        return v1.take(self.sock, length)

    def refused(self):
        """The status with which the greeting is refused, and nothing more than that comes."""
        got = self.take()
        assert got.kind == HELLO_REPLY, got.kind
        assert len(got.wire) == FIXED.size, "a refusal says nothing else"
        self.ends()
        return got.status

    def ends(self):
        try:
            assert self.sock.recv(1) == b"", "something is said to a peer that was not let in"
        except ConnectionResetError:
            pass

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Control:
    """A connection to a control port on which requests prove a key."""

    def __init__(self, name, key, timeout=20):
        self.key, self.connection = key, http.client.HTTPConnection(name, timeout=timeout)

    def plain(self, method, path, body=None, headers=()):
        """(status, headers, body) of a request that proves nothing."""
        self.connection.request(method, path, body, dict(headers))
        reply = self.connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()

    def challenge(self):
        status, _, body = self.plain("GET", "/v1/challenge")
        assert status == 200, (status, body)
        return bytes.fromhex(json.loads(body)["challenge"])

    def state(self, challenge, nonce, method, path, body=b""):
        return transcript(b"ferry control 1", challenge, nonce, method.encode(), path.encode(), digest(body))

    def header(self, challenge, method, path, body=b"", nonce=b"n" * 16):
        proof = proof_of(self.key, INITIATOR, self.state(challenge, nonce, method, path, body))
        return "Ferry nonce=%s, body=%s, proof=%s" % (nonce.hex(), digest(body).hex(), proof.hex())

    def ask(self, method, path, body=b"", headers=()):
        """(status, body) of a request that proves the key; the reply's proof is checked."""
        challenge, nonce = self.challenge(), os.urandom(16)
        said = dict(headers, Authorization=self.header(challenge, method, path, body, nonce))
        status, got, reply = self.plain(method, path, body or None, said)
        if status != 401:
            base = self.state(challenge, nonce, method, path, body)
            state = digest(base + digest(str(status).encode()))
            state = digest(state + digest(digest(reply)))
            assert got.get("X-Ferry-Proof") == proof_of(self.key, TARGET, state).hex(), "the reply proves nothing"
        return status, reply

    def get(self, path):
        status, reply = self.ask("GET", path)
        assert status == 200, (status, reply)
        return json.loads(reply)

    def close(self):
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
