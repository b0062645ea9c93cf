# SPDX-License-Identifier: Apache-2.0
"""Access control by key: who knows it is served, everybody else is refused before a request is read."""
import glob
import http.server
import json
import os
import random
import socket
import struct
import subprocess
import threading
import time

import pytest

import harness
import keys
import v1

MIB = 1 << 20
PATTERN = v1.pattern(7, 4096)


class Guarded:
    """`ferry serve` with a key, and what it says about itself to who proves it."""

    def __init__(self, server, path, key):
        self.server, self.name, self.path, self.key = server, server.name, path, key
        document = self.get("/v1/segment")
        endpoint = harness.hp_attribute(document)["endpoints"][0]
        self.where = endpoint["host"], endpoint["port"]
        buffer = document["detail"]["buffers"][0]
        self.address, self.registration = buffer["addr"], harness.hp_attribute(buffer)["registration_id"]

    def get(self, path):
        with keys.Control(self.name, self.key) as control:
            return control.get(path)

    def greet(self):
        return keys.Greeting(*self.where)

    def transport(self):
        return [t for t in self.get("/v1/transports")["transports"] if t["name"] == "hp_tcp"][0]

    def refused(self):
        return self.transport()["refused"]

    def served(self):
        return sum(w["served_ops"] for w in self.transport()["workers"])

    def read_request(self, ident=1):
        return keys.frame(keys.READ, ident=ident, registration=self.registration, address=self.address, length=64)

    def warnings(self):
        return [line for line in self.server.stderr().splitlines() if " warn " in line]


@pytest.fixture
def guard(serve, tmp_path):
    """guard(setting=value, ...) starts a server with a new key."""
    def start(path=None, key=None, **settings):
        if path is None:
            path, key = keys.make_key(tmp_path)
        more = [part for name, value in settings.items() for part in ("--set", "%s=%s" % (name, value))]
        return Guarded(serve(*keys.use(path), *more, memory=("4MiB",)), path, key)
    return start


@pytest.fixture
def guarded(guard):
    return guard(**{"transports.hp_tcp.handshake_timeout_ms": 60000})


# Who knows the key.

@pytest.mark.parametrize("reactor", ["uring", "epoll"])
def test_peers_with_the_key_move_data(ferry, guarded, reactor):
    got = harness.bench(ferry, "--target", guarded.name, "--op", "mix", "--check", "--block", 8192, "--batch", 4,
                        "--duration", 0.5, "--set", "reactor=" + reactor, *keys.use(guarded.path))
    assert got[0]["errors"] == 0 and got[0]["verified_bytes"] > 0
    assert not any(guarded.refused().values()) and not guarded.warnings()


def test_an_independent_initiator_is_let_in_and_sees_the_proof(guarded):
    with guarded.greet() as one:
        one.challenge()
        one.prove(guarded.key)
        assert one.read(guarded.registration, guarded.address, 4096) == bytes(4096)
        assert one.read(guarded.registration, guarded.address, 64, ident=2) == bytes(64)


def test_requests_may_follow_the_proof_at_once(guarded):
    with guarded.greet() as one:
        one.challenge()
        mine = keys.proof_frame(keys.proof_of(guarded.key, keys.INITIATOR,
                                              keys.transcript(b"ferry greeting 1", *one.said)))
        one.send(mine + guarded.read_request())
        kinds = [one.take().kind for _ in range(3)]
        assert kinds == [keys.HELLO_REPLY, keys.PROOF, keys.READ_REPLY]
        assert v1.take(one.sock, 64) == bytes(64)


def test_a_key_is_changed_in_a_running_fleet(ferry, guard, tmp_path):
    """The server takes the old and the new key; initiators with either one are served."""
    old_path, old = keys.make_key(tmp_path, "old")
    new_path, new = keys.make_key(tmp_path, "new")
    both = tmp_path / "both"
    both.write_text("# new\n%s\n# old\n%s\n" % (new.hex(), old.hex()))
    both.chmod(0o600)
    server = guard(str(both), new)
    for path in (old_path, new_path, str(both)):
        got = harness.bench(ferry, "--target", server.name, "--op", "read", "--block", 4096, "--duration", 0.2,
                            *keys.use(path))
        assert got[0]["errors"] == 0


# Who does not. Each row makes one connection and is refused; nothing of it is served.

def no_feature(server, one):
    one.send(keys.hello(features=0))
    return one.refused()


def wrong_key(server, one):
    one.challenge()
    one.send(keys.proof_frame(keys.proof_of(b"x" * 32, keys.INITIATOR,
                                            keys.transcript(b"ferry greeting 1", *one.said))))
    return one.refused()


def empty_proof(server, one):
    one.challenge()
    one.send(keys.proof_frame(bytes(32)))
    return one.refused()


def reflected_proof(server, one):
    """The proof of the other role."""
    one.challenge()
    one.send(keys.proof_frame(keys.proof_of(server.key, keys.TARGET,
                                            keys.transcript(b"ferry greeting 1", *one.said))))
    return one.refused()


def another_hello(server, one):
    """A right proof, over a HELLO that somebody changed on its way: session parameters are covered."""
    one.challenge(keys.hello(nonce=b"a" * 16, incarnation=b"1" * 16))
    one.said[0] = keys.hello(nonce=b"a" * 16, incarnation=b"2" * 16)
    one.send(keys.proof_frame(keys.proof_of(server.key, keys.INITIATOR,
                                            keys.transcript(b"ferry greeting 1", *one.said))))
    return one.refused()


def replayed(server, one):
    """Every byte that a good initiator said, once more."""
    with server.greet() as good:
        said = keys.hello(nonce=b"r" * 16)
        good.challenge(said)
        mine = keys.proof_frame(keys.proof_of(server.key, keys.INITIATOR,
                                              keys.transcript(b"ferry greeting 1", *good.said)))
        good.send(mine)
        assert good.take().status == keys.OK
    one.challenge(said)
    one.send(mine)
    return one.refused()


def request_first(server, one):
    one.send(server.read_request())
    return one.refused()


def request_for_a_proof(server, one):
    one.challenge()
    one.send(server.read_request())
    return one.refused()


def request_behind_the_hello(server, one):
    one.send(keys.hello() + server.read_request())
    assert one.take().kind == keys.CHALLENGE
    return one.refused()


def hello_twice(server, one):
    one.challenge()
    one.send(keys.hello())
    return one.refused()


def proof_first(server, one):
    one.send(keys.proof_frame(bytes(32)))
    return one.refused()


def garbage(server, one):
    one.send(struct.pack(">IB", keys.MAGIC, 1) + b"\xff" * 59)
    return one.refused()


REFUSED = [
    (no_feature, keys.AUTH, "no_key"),
    (wrong_key, keys.AUTH, "wrong_key"),
    (empty_proof, keys.AUTH, "wrong_key"),
    (reflected_proof, keys.AUTH, "wrong_key"),
    (another_hello, keys.AUTH, "wrong_key"),
    (replayed, keys.AUTH, "wrong_key"),
    (request_first, keys.BAD_REQUEST, "garbage"),
    (request_for_a_proof, keys.BAD_REQUEST, "garbage"),
    (request_behind_the_hello, keys.BAD_REQUEST, "garbage"),
    (hello_twice, keys.BAD_REQUEST, "garbage"),
    (proof_first, keys.BAD_REQUEST, "garbage"),
    (garbage, 13, "garbage"),
]


@pytest.mark.parametrize("attempt,status,reason", REFUSED, ids=[row[0].__name__ for row in REFUSED])
def test_who_does_not_prove_the_key_is_refused(guarded, attempt, status, reason):
    served = guarded.served()
    for _ in range(5):
        with guarded.greet() as one:
            assert attempt(guarded, one) == status
    refused = guarded.refused()
    assert refused[reason] == 5 and sum(refused.values()) == 5, refused
    # Greeting replies count as answers; a request would have counted beyond them.
    assert guarded.served() <= served + 5 * 5
    lines = guarded.warnings()
    assert len(lines) == 1, lines
    assert guarded.key.hex() not in guarded.server.stderr()
    with guarded.greet() as good:
        good.challenge()
        good.prove(guarded.key)


def mutate(chance, pieces):
    """Flip a bit, cut, double and rename, up to three times."""
    for _ in range(chance.randint(1, 3)):
        piece = chance.choice(pieces)
        what = chance.random()
        if what < 0.6:
            piece[chance.randrange(len(piece))] ^= 1 << chance.randrange(8)
        elif what < 0.8:
            del piece[max(8, chance.randrange(len(piece))):]
        else:
            pieces.append(bytearray(piece))
            piece[5] = chance.randrange(14)


def test_mutated_greetings_never_get_in(guarded):
    """Whatever comes in the place of a proof is refused or waited for, and the server lives."""
    chance = random.Random(int(os.environ.get("FERRY_TEST_SEED", "5")))
    reply = struct.pack(">IBB", keys.MAGIC, keys.VERSION, keys.READ_REPLY)
    for _ in range(100000 if harness.LONG else 2000):
        with guarded.greet() as one:
            pieces, good = [bytearray(keys.hello())], None
            if chance.random() < 0.7:
                one.challenge(bytes(pieces[0]))
                good = keys.proof_of(guarded.key, keys.INITIATOR, keys.transcript(b"ferry greeting 1", *one.said))
                pieces = [bytearray(keys.proof_frame(good))]
            mutate(chance, pieces)
            said, heard = b"".join(pieces) + guarded.read_request(), b""
            try:
                one.send(said)
                one.sock.shutdown(socket.SHUT_WR)
                while True:
                    part = one.sock.recv(65536)
                    if not part:
                        break
                    heard += part
            except (BrokenPipeError, ConnectionResetError):
                pass
            # A flag that may be ignored, or a bit flipped twice, leaves a proof what it was.
            assert reply not in heard or pieces[0][72:] == good, said.hex()
    with guarded.greet() as one:
        one.challenge()
        one.prove(guarded.key)


def test_every_challenge_is_new(guarded):
    nonces = set()
    for _ in range(20):
        with guarded.greet() as one:
            nonces.add(one.challenge(keys.hello(nonce=bytes(16))).value[16:])
    assert len(nonces) == 20


def test_a_v1_peer_is_refused_before_its_request(guarded):
    served = guarded.served()
    for opcode in (v1.READ, v1.WRITE):
        with v1.Client(*guarded.where) as client:
            # Only the first bytes: the refusal does not wait for a whole request.
            client.sock.sendall(struct.pack(">IHBB", v1.MAGIC, v1.VERSION, opcode, 0))
            assert client.response() == (v1.INTERNAL, 0, 0)
            assert client.ends()
    with v1.Client(*guarded.where) as client:
        client.send_request(v1.WRITE, guarded.registration, guarded.address, 4096, body=PATTERN)
        assert client.response() == (v1.INTERNAL, 0, 0)
        assert client.ends()
    with guarded.greet() as one:
        one.challenge()
        one.prove(guarded.key)
        assert one.read(guarded.registration, guarded.address, 4096) == bytes(4096), "a refused WRITE landed"
    assert guarded.refused()["v1"] == 3
    assert guarded.served() <= served + 3 + 4
    assert len(guarded.warnings()) == 1 and "v1" in guarded.warnings()[0]


# What a connection may cost before it is let in.

def test_a_silent_peer_is_closed_in_time(guard):
    server = guard(**{"transports.hp_tcp.handshake_timeout_ms": 300})
    for said in (b"", keys.hello()[:20]):
        with server.greet() as one:
            one.send(said)
            begin = time.monotonic()
            one.ends()
            assert time.monotonic() - begin < 10 * harness.PATIENCE
    # Bytes that trickle in do not extend it.
    with server.greet() as one:
        data, begin = keys.hello(), time.monotonic()
        try:
            for at in range(len(data)):
                one.send(data[at:at + 1])
                time.sleep(0.05)
        except (BrokenPipeError, ConnectionResetError):
            pass
        else:
            raise AssertionError("a trickled HELLO was waited for")
        assert time.monotonic() - begin < 10 * harness.PATIENCE
    assert server.refused()["late"] == 3
    assert len(server.warnings()) == 1


def test_a_crowd_at_the_gate_keeps_nobody_out(ferry, guarded):
    """The oldest of those who wait gives way; descriptors stay bounded and the good ones get in."""
    base, _ = harness.settled_uses(guarded.server.pid)
    crowd = []
    try:
        for _ in range(600):
            one = guarded.greet()
            one.send(keys.hello()[:30])
            crowd.append(one)
        got = harness.bench(ferry, "--target", guarded.name, "--op", "mix", "--check", "--block", 4096, "--duration",
                            0.3, *keys.use(guarded.path))
        assert got[0]["errors"] == 0
        harness.wait_until(lambda: harness.fd_count(guarded.server.pid) < base + 64 * os.cpu_count() + 64, 10,
                           "most of the crowd has given way")
        assert guarded.refused()["late"] > 0
        assert len(guarded.warnings()) == 1
    finally:
        for one in crowd:
            one.close()


def test_a_good_initiator_beside_a_flood_sees_no_error(ferry, guarded, start):
    path = guarded.path
    bench = start([ferry, "bench", "--json", "--target", guarded.name, "--op", "mix", "--check", "--block", 4096,
                   "--batch", 4, "--duration", 2, *keys.use(path)])
    attempts = [row[0] for row in REFUSED if row[0] is not replayed]
    count = 0
    while bench.alive():
        with guarded.greet() as one:
            attempts[count % len(attempts)](guarded, one)
        with v1.Client(*guarded.where) as client:
            client.send_request(v1.READ, guarded.registration, guarded.address, 64)
            client.response()
        count += 1
    status, out, err = bench.finish()
    assert status == 0, err
    got = harness.records(out)
    assert got[0]["errors"] == 0 and got[0]["verified_bytes"] > 0
    assert count > 5
    refused = guarded.refused()
    assert sum(refused.values()) == 2 * count, refused
    assert len(guarded.warnings()) == len([reason for reason, n in refused.items() if n])


# What a ferry initiator says when it is on the wrong side of the gate.

def run_bench(ferry, name, *arguments):
    return harness.run([ferry, "bench", "--json", "--target", name, "--op", "read", "--block", 4096, "--duration", 0.2,
                        *arguments], 60)


def test_initiators_without_the_key_are_told_the_remedy(ferry, guarded, tmp_path):
    other, _ = keys.make_key(tmp_path, "other")
    status, _, err = run_bench(ferry, guarded.name)
    assert status != 0 and "set auth_key_file here" in err and "ERR_REFUSED" in err, err
    status, _, err = run_bench(ferry, guarded.name, *keys.use(other))
    assert status != 0 and "auth_key_file" in err and "does not accept our proof" in err, err


def test_an_initiator_with_a_key_refuses_who_proves_none(ferry, serve, tmp_path):
    server = serve(memory=("4MiB",))
    path, _ = keys.make_key(tmp_path)
    status, _, err = run_bench(ferry, server.name, *keys.use(path))
    assert status != 0 and "set auth_key_file there" in err, err


def test_an_initiator_with_a_key_refuses_v1(ferry, tmp_path):
    path, key = keys.make_key(tmp_path)
    with v1.Server([v1.Buffer(0x7f0000001000, MIB, 3)]) as server:
        status, _, err = run_bench(ferry, server.name, *keys.use(path))
        assert status != 0 and not server.requests and server.connections == 0, err


class HalfGuarded:
    """Control plane and data port of a peer that proves what it is told to; neither is a ferry."""

    def __init__(self, key, good_reply=True, data=None):
        self.key, self.good_reply, self.data, self.asked = key, good_reply, data, []
        self.incarnation = "%032x" % 77
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.asked.append((self.path, self.headers.get("Authorization")))
                if self.path == "/v1/challenge":
                    self.challenge = os.urandom(16)
                    return self.answer(json.dumps({"challenge": self.challenge.hex()}).encode())
                parts = dict(p.split("=") for p in self.headers["Authorization"][6:].split(", "))
                state = keys.transcript(b"ferry control 1", self.challenge, bytes.fromhex(parts["nonce"]), b"GET",
                                        self.path.encode(), bytes.fromhex(parts["body"]))
                assert bytes.fromhex(parts["proof"]) == keys.proof_of(outer.key, keys.INITIATOR, state)
                body = json.dumps(outer.document()).encode()
                state = keys.digest(keys.digest(state + keys.digest(b"200")) + keys.digest(keys.digest(body)))
                proof = keys.proof_of(outer.key, keys.TARGET, state)
                if outer.good_reply == "changed":
                    body = body.replace(b"cpu:0", b"cpu:1")
                elif not outer.good_reply:
                    proof = bytes(32)
                return self.answer(body, proof.hex())

            def answer(self, body, proof=None):
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                if proof:
                    self.send_header("x-ferry-proof", proof)
                self.end_headers()
                self.wfile.write(body)

        self.control = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.control.daemon_threads = True
        self.name = "127.0.0.1:%d" % self.control.server_address[1]
        threading.Thread(target=self.control.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def document(self):
        attribute = json.dumps({"permission": "global_read_write", "protocol": "tent_hp_tcp", "registration_id": 3,
                                "version": 1})
        return {"name": self.name, "type": "memory", "machine_id": "x:y", "rpc_server_addr": self.name, "detail": {
            "device_attrs": {}, "devices": [], "topology": "{}",
            "buffers": [{"addr": 0x7f0000001000, "length": MIB, "location": "cpu:0", "transports": [13],
                         "regions": [{"size": MIB, "location": "cpu:0"}], "transport_attrs": [[13, attribute]],
                         "rkey": [], "shm_path": "", "mnnvl_handle": "", "internal": False}],
            "transport_attrs": [[13, json.dumps({
                "endpoints": [{"host": "127.0.0.1", "port": self.listener.getsockname()[1]}],
                "ferry": {"frame_version": 1}, "incarnation": self.incarnation, "max_transfer_bytes": 1 << 30,
                "protocol": "tent_hp_tcp", "version": 1})]]}}

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            try:
                self.data(self, sock)
            except (EOFError, OSError, TypeError):
                pass
            sock.close()

    def reply(self):
        return keys.frame(keys.HELLO_REPLY, keys.extension(2, struct.pack(
            ">16sQQQQIIQ", bytes.fromhex(self.incarnation), 5, 0, 1 << 30, 0, 64, 0, 1 << 22)))

    def close(self):
        self.control.shutdown()
        self.control.server_close()
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def take_frame(sock):
    head = v1.take(sock, keys.FIXED.size)
    return head + v1.take(sock, struct.unpack(">H", head[6:8])[0] - len(head))


def no_challenge(peer, sock):
    take_frame(sock)
    sock.sendall(peer.reply())
    sock.recv(1)


def wrong_proof(peer, sock):
    said = [take_frame(sock)]
    said.append(keys.frame(keys.CHALLENGE, keys.extension(7, bytes.fromhex(peer.incarnation) + os.urandom(16))))
    sock.sendall(said[1])
    mine = take_frame(sock)
    assert mine[keys.FIXED.size + 8:] == keys.proof_of(peer.key, keys.INITIATOR,
                                                      keys.transcript(b"ferry greeting 1", *said))
    # The very proof of the initiator sent back, under the target's name.
    sock.sendall(peer.reply() + mine)
    sock.recv(1)


def another_life(peer, sock):
    take_frame(sock)
    sock.sendall(keys.frame(keys.CHALLENGE, keys.extension(7, b"o" * 16 + os.urandom(16))))
    peer.proofs = sock.recv(1)


@pytest.mark.parametrize("data,says", [(no_challenge, "does not prove the key"),
                                       (wrong_proof, "proof of the key does not fit")])
def test_an_initiator_checks_the_target_of_data(start, tmp_path, data, says):
    path, key = keys.make_key(tmp_path)
    with HalfGuarded(key, data=data) as peer:
        client = start([harness.program("survivor"), peer.name, 4096], stdin=subprocess.PIPE,
                       env={"FERRY_AUTH_KEY_FILE": path})
        assert client.line(20) == "ready"
        answer = client.ask("once", 20)
        assert answer.startswith("failed ERR_REFUSED") and says in answer, answer
        assert "auth_key_file" in answer


def test_an_initiator_proves_nothing_to_another_life(start, tmp_path):
    path, key = keys.make_key(tmp_path)
    with HalfGuarded(key, data=another_life) as peer:
        client = start([harness.program("survivor"), peer.name, 4096], stdin=subprocess.PIPE,
                       env={"FERRY_AUTH_KEY_FILE": path})
        assert client.line(20) == "ready"
        answer = client.ask("once", 20)
        assert answer.startswith("failed ERR_STALE_KEY"), answer
        assert peer.proofs == b""


@pytest.mark.parametrize("good_reply", [False, "changed"])
def test_a_reply_that_proves_nothing_is_not_read(ferry, tmp_path, good_reply):
    path, key = keys.make_key(tmp_path)
    with HalfGuarded(key, good_reply) as peer:
        status, _, err = run_bench(ferry, peer.name, *keys.use(path))
        assert status != 0 and "the reply does not prove the key" in err, err


# The control plane.

CHANGES = (("Content-Type", "application/json"), ("X-Ferry", "1"))
NOTE = b'{"sender": "s", "name": "n", "message": "m"}'


def test_every_path_but_health_asks_for_a_proof(guarded):
    for method, path in [("GET", "/v1/segment"), ("HEAD", "/v1/segment"), ("GET", "/v1/process"),
                         ("GET", "/v1/transports"), ("GET", "/v1/version"), ("GET", "/v1/nowhere"), ("GET", "/"),
                         ("POST", "/v1/notify"), ("POST", "/v1/goodbye"), ("DELETE", "/v1/segment"),
                         ("POST", "/v1/challenge"), ("POST", "/health")]:
        with keys.Control(guarded.name, guarded.key) as control:
            status, headers, _ = control.plain(method, path, NOTE if method == "POST" else None, CHANGES)
            assert status == 401, (method, path, status)
            assert headers["WWW-Authenticate"] == "Ferry"
    with keys.Control(guarded.name, guarded.key) as control:
        status, _, body = control.plain("GET", "/health")
        assert status == 200 and json.loads(body)["status"] == "ok"
    assert len(guarded.warnings()) == 1


def test_who_proves_the_key_is_answered(guarded):
    with keys.Control(guarded.name, guarded.key) as control:
        for _ in range(3):
            assert control.get("/v1/segment")["name"] == guarded.name
        assert control.ask("POST", "/v1/notify", NOTE, CHANGES)[0] == 204
        assert control.ask("GET", "/v1/nowhere")[0] == 404
        assert control.ask("POST", "/v1/notify", NOTE)[0] == 403
        assert control.ask("DELETE", "/v1/segment")[0] == 405
        assert control.ask("POST", "/v1/notify", b"no json", CHANGES)[0] == 400
    assert not guarded.warnings()


def test_a_proof_is_good_for_one_request_on_one_connection(guarded):
    with keys.Control(guarded.name, guarded.key) as control, keys.Control(guarded.name, guarded.key) as other:
        header = (("Authorization", control.header(control.challenge(), "GET", "/v1/segment")),)
        assert control.plain("GET", "/v1/segment", None, header)[0] == 200
        assert control.plain("GET", "/v1/segment", None, header)[0] == 401, "a proof was taken twice"
        assert other.plain("GET", "/v1/segment", None, header)[0] == 401
        other.challenge()
        assert other.plain("GET", "/v1/segment", None, header)[0] == 401
        # A challenge is void once anything was tried with it.
        header = (("Authorization", control.header(control.challenge(), "GET", "/v1/segment")),)
        assert control.plain("GET", "/v1/segment")[0] == 401
        assert control.plain("GET", "/v1/segment", None, header)[0] == 401
    assert guarded.server.stderr().count("refused") == 2
    refused = guarded.get("/v1/process")["control_refused"]
    assert refused["wrong_key"] == 4 and refused["no_key"] == 1, refused


@pytest.mark.parametrize("what", ["method", "path", "body", "key", "shape", "role"])
def test_a_proof_covers_the_whole_request(guarded, what):
    with keys.Control(guarded.name, guarded.key) as control:
        challenge, body = control.challenge(), NOTE
        method, path = "POST", "/v1/notify"
        if what == "key":
            control.key = b"k" * 32
        header = control.header(challenge, "GET" if what == "method" else method,
                                "/v1/goodbye" if what == "path" else path, body)
        if what == "body":
            body = body.replace(b'"m"', b'"M"')
        if what == "shape":
            header += " "
        if what == "role":
            state = control.state(challenge, b"n" * 16, method, path, body)
            header = "Ferry nonce=%s, body=%s, proof=%s" % (
                (b"n" * 16).hex(), keys.digest(body).hex(), keys.proof_of(guarded.key, keys.TARGET, state).hex())
        status, _, reply = control.plain(method, path, body, CHANGES + (("Authorization", header),))
        assert status == 401, (status, reply)


# The key itself.

def test_a_key_file_that_others_can_read_is_refused(ferry, tmp_path):
    path, key = keys.make_key(tmp_path, mode=0o644)
    status, out, err = harness.run([ferry, "serve", "--listen", "127.0.0.1:0", "--memory", "1MiB", *keys.use(path)], 20)
    assert status != 0 and "chmod 600" in err and path in err
    assert key.hex() not in out + err


def test_the_key_is_shown_nowhere(ferry, guard, tmp_path):
    """Not in logs at their most talkative, not in reports, settings, errors, or what others see of the process."""
    path, key = keys.make_key(tmp_path)
    server = guard(path, key, log_level="trace")
    seen = [harness.run([ferry, "config", *keys.use(path)], 20), harness.run([ferry, "config", "--json", *keys.use(path)])]
    other, other_key = keys.make_key(tmp_path, "other")
    seen.append(run_bench(ferry, server.name, *keys.use(path), "--set", "log_level=trace"))
    seen.append(run_bench(ferry, server.name, *keys.use(other), "--set", "log_level=trace"))
    for report in ("/v1/segment", "/v1/process", "/v1/transports", "/v1/version"):
        seen.append(server.get(report))
    for row in REFUSED:
        with server.greet() as one:
            row[0](server, one)
    for name in glob.glob("/proc/%d/*" % server.server.pid):
        if os.path.basename(name) in ("cmdline", "environ", "maps", "status"):
            with open(name, "rb") as f:
                seen.append(f.read())
    seen.append(server.server.stderr())
    text = repr(seen).lower()
    import base64
    for secret in (key, other_key):
        for form in (secret.hex(), base64.b64encode(secret).decode().lower(), secret.hex()[:16], repr(secret)[2:-1]):
            assert form not in text


def test_a_key_in_the_place_of_a_path_is_not_repeated(ferry, tmp_path):
    _, key = keys.make_key(tmp_path)
    status, out, err = harness.run([ferry, "serve", "--listen", "127.0.0.1:0", "--memory", "1MiB", *keys.use(key.hex())], 20)
    assert status != 0 and "looks like a key" in err
    assert key.hex() not in out + err
