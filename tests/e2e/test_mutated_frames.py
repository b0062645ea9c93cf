# SPDX-License-Identifier: Apache-2.0
"""Damaged requests and greetings of both wires, thrown at a living server beside a good initiator
(field report B39): whatever a stranger says, the server lives, holds nothing for it and serves on."""
import collections
import os
import random
import socket
import struct

import pytest

import harness
import keys
import v1

STREAMS = 50000 if harness.LONG else 600  # damaged ones, of each wire
SEED = int(os.environ.get("FERRY_TEST_SEED", "39"))
# Freed memory stays in the quarantine of an address sanitizer.
GROWTH_MAX = (512 if harness.SANITIZER else 8) << 20
ODD = (0, 1, 63, 1 << 31, 1 << 32, 1 << 40, 1 << 63, (1 << 64) - 1)
SCATTER_FLAG = 4


def v1_stream(registration, address):
    """A good stream: its pieces, one a request with its payload."""
    pack = v1.REQUEST.pack
    return [bytearray(pack(v1.MAGIC, 1, v1.READ, 0, 1, registration, address, 256, 0)),
            bytearray(pack(v1.MAGIC, 1, v1.WRITE, 0, 2, registration, address, 64, 0) + bytes(range(64))),
            bytearray(pack(v1.MAGIC, 1, v1.READ, 0, 3, registration, address + 4096, 64, 0))]


def ferry_frame(kind, ident, registration, address, length, body=b"", flags=0, payload=b""):
    head = keys.FIXED.pack(keys.MAGIC, keys.VERSION, kind, keys.FIXED.size + len(body), flags, 0, 0, 0, ident,
                           registration, address, length, 0, 0, 0)
    return bytearray(head + body + payload)


def ferry_stream(registration, address):
    pieces = struct.pack(">QQQQQQ", address, 128, registration, address + 8192, 128, registration)
    return [bytearray(keys.hello(features=15)),
            ferry_frame(keys.READ, 1, registration, address, 256),
            ferry_frame(keys.WRITE, 2, registration, address, 64, payload=bytes(range(64))),
            ferry_frame(keys.READ, 3, 0, 0, 256, keys.extension(3, pieces), SCATTER_FLAG),
            ferry_frame(keys.WRITE, 4, 0, 0, 256, keys.extension(3, pieces), SCATTER_FLAG, bytes(256)),
            ferry_frame(keys.READ, 5, registration, address + 4096, 64)]


WIRES = {"v1": (v1_stream, v1.RESPONSE.pack(v1.MAGIC, 1, v1.OK, 3, 64, 0)),
         "ferry": (ferry_stream, bytes(ferry_frame(keys.READ_REPLY, 5, 0, 0, 64)))}


def damage(chance, pieces):
    """Damage one to three places of a stream; every kind of damage changes it."""
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(pieces))
        piece, what = pieces[at], chance.randrange(6)
        if what <= 1:
            piece[chance.randrange(len(piece))] ^= 1 << chance.randrange(8)
        elif what == 2:
            piece[chance.randrange(len(piece))] ^= chance.randint(1, 255)
        elif what == 3:
            field = 8 * chance.randrange(max(1, len(piece) // 8))
            piece[field:field + 8] = struct.pack(">Q", chance.choice(ODD))
        elif what == 4:
            del piece[max(1, chance.randrange(len(piece))):]
        else:
            pieces.insert(at, bytearray(chance.randbytes(chance.randint(1, 300))))
        yield what


def exchange(where, said):
    """Say it all on one connection and close that direction; everything the server says until it ends."""
    heard = bytearray()
    with socket.create_connection(where, timeout=10 * harness.PATIENCE) as sock:
        try:
            sock.sendall(said)
            sock.shutdown(socket.SHUT_WR)
            while True:
                part = sock.recv(1 << 18)
                if not part:
                    break
                heard += part
        except (BrokenPipeError, ConnectionResetError):
            pass
    return bytes(heard)


class Good:
    """A good initiator that works again and again beside the damage; any error of it is a failure."""

    def __init__(self, ferry, start, name):
        self.begin = lambda: start([ferry, "bench", "--json", "--target", name, "--op", "mix", "--block", 4096,
                                    "--check", "--duration", 1, "--warmup", 0])
        self.bench, self.verified = self.begin(), 0

    def look(self, last=False):
        """Take the result of a run that is over, and begin another."""
        if self.bench.alive() and not last:
            return
        status, out, err = self.bench.finish(60)
        assert status == 0, err
        for record in harness.records(out):
            assert record.get("errors", 0) == 0, record
            self.verified += record.get("verified_bytes", 0)
        if not last:
            self.bench = self.begin()


@pytest.mark.parametrize("wire", sorted(WIRES))
@pytest.mark.seconds(60 if not harness.LONG else 900)
def test_a_damaged_stream_harms_nobody(ferry, serve, start, wire):
    make, answer = WIRES[wire]
    chance, server = random.Random(SEED), serve(memory=("1MiB", "4MiB"))
    print("seed", SEED)
    where = server.data_endpoint()
    address, length, registration = min((server.registration(i) for i in range(2)), key=lambda b: b[1])
    with v1.Client(*where) as client:
        client.write(registration, address, v1.pattern(SEED, length))
    # What is damaged below is served in full as it is: the last answer of an undamaged stream comes.
    assert answer in exchange(where, b"".join(make(registration, address)))

    base, _ = harness.settled_uses(server.pid)
    good = Good(ferry, start, server.name)
    for _ in range(50):
        exchange(where, b"".join(make(registration, address)))
    harness.wait_until(lambda: harness.fd_count(server.pid) > base, 10, "the good initiator has connected")
    memory = harness.resident_bytes(server.pid)

    damages, heard_of = collections.Counter(), collections.Counter()
    for _ in range(STREAMS):
        pieces = make(registration, address)
        damages.update(damage(chance, pieces))
        heard = exchange(where, b"".join(pieces))
        heard_of["nothing" if not heard else "the last answer" if answer in heard else "some"] += 1
        assert not heard or heard[:4] in (b"MCTP", b"FRRY"), heard[:64].hex()
        assert server.alive(), "seed %d: %s" % (SEED, server.stderr()[-3000:])
        good.look()
    good.look(last=True)
    print(wire, "damages", dict(damages), "heard", dict(heard_of), "verified beside", good.verified)
    assert good.verified > 0
    assert len(damages) == 6 and min(damages.values()) > 0
    assert min(heard_of["some"] + heard_of["nothing"], heard_of["the last answer"]) > 0, heard_of

    grown = harness.resident_bytes(server.pid) - memory
    print("resident bytes grew by", grown)
    assert grown <= GROWTH_MAX
    harness.wait_until(lambda: harness.fd_count(server.pid) <= base, 5, "descriptors are back")
    with v1.Client(*where) as client:
        client.write(registration, address, v1.pattern(SEED + 1, length))
        assert client.read(registration, address, length) == v1.pattern(SEED + 1, length)
    assert server.stop() == 0, server.stderr()[-3000:]
