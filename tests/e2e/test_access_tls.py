# SPDX-License-Identifier: Apache-2.0
"""TLS between engines: who shows a certificate of the fleet's CA moves data, nobody else is served."""
import json
import os
import socket
import ssl
import struct
import subprocess
import time

import pytest

import certificates
import harness
import keys
import v1

MIB = 1 << 20


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """The CA of the fleet and a certificate that is as it should be."""
    authority = certificates.Authority(tmp_path_factory.mktemp("fleet"))
    authority.good = authority.issue("good")
    return authority


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    authority = certificates.Authority(tmp_path_factory.mktemp("stranger"), "other")
    authority.good = authority.issue("stranger")
    return authority


class Guarded:
    """`ferry serve` with TLS, seen with a certificate of the fleet."""

    def __init__(self, server, certificate):
        self.server, self.name, self.certificate = server, server.name, certificate
        document = self.get("/v1/segment")
        endpoint = harness.hp_attribute(document)["endpoints"][0]
        self.where = endpoint["host"], endpoint["port"]
        buffer = document["detail"]["buffers"][0]
        self.address, self.registration = buffer["addr"], harness.hp_attribute(buffer)["registration_id"]

    def context(self, certificate=None, version=ssl.TLSVersion.TLSv1_3, protocols=("ferry/1",)):
        used = certificate or self.certificate
        context = ssl.create_default_context(cafile=self.certificate.ca)
        context.check_hostname = False
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.maximum_version = version
        if used.cert:
            context.load_cert_chain(used.cert, used.key)
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context

    def get(self, path):
        import http.client
        host, port = self.name.rsplit(":", 1)
        connection = http.client.HTTPSConnection(host, int(port), timeout=10 * harness.PATIENCE,
                                                 context=self.context(protocols=()))
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            body = reply.read()
            assert reply.status == 200, body
            return json.loads(body)
        finally:
            connection.close()

    def connect(self, certificate=None, **options):
        """A TLS connection to the data port."""
        sock = socket.create_connection(self.where, timeout=10 * harness.PATIENCE)
        return self.context(certificate, **options).wrap_socket(sock, server_hostname=self.where[0])

    def transport(self):
        return [t for t in self.get("/v1/transports")["transports"] if t["name"] == "hp_tcp"][0]

    def refused(self):
        return {reason: n for reason, n in self.transport()["refused"].items() if n}

    def served(self):
        return sum(w["served_ops"] for w in self.transport()["workers"])

    def warnings(self, area="hp_tcp"):
        return [line for line in self.server.stderr().splitlines() if " warn %s:" % area in line]


@pytest.fixture
def guard(serve, fleet):
    def start(*more, certificate=None, **options):
        certificate = certificate or fleet.good
        return Guarded(serve(*certificate.use(), *more, memory=("16MiB",), **options), certificate)
    return start


@pytest.fixture
def guarded(guard):
    return guard()


def bench(ferry, name, *arguments):
    return harness.run([ferry, "bench", "--json", "--target", name, "--op", "read", "--block", 4096, "--duration", 0.2,
                        *arguments], 60)


# Who belongs to the fleet.

@pytest.mark.parametrize("reactor", ["uring", "epoll"])
def test_peers_of_the_fleet_move_data(ferry, guarded, fleet, reactor):
    got = harness.bench(ferry, "--target", guarded.name, "--op", "mix", "--check", "--block", "4096..4194304",
                        "--batch", 3, "--duration", 0.2, "--set", "reactor=" + reactor, *fleet.good.use())
    assert all(r["errors"] == 0 and r["verified_bytes"] > 0 for r in got)
    assert not guarded.refused() and not guarded.warnings() and not guarded.warnings("control")


def test_nothing_on_the_wire_is_readable(ferry, guarded, fleet, relay):
    """A relay on the way sees neither the memory nor a frame's magic."""
    seen = []

    import threading
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(a, b):
        try:
            while True:
                data = a.recv(65536)
                if not data:
                    break
                seen.append(data)
                b.sendall(data)
        except OSError:
            pass
        try:
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def accept():
        near, _ = listener.accept()
        far = socket.create_connection(guarded.where)
        threads = [threading.Thread(target=pump, args=pair, daemon=True) for pair in ((near, far), (far, near))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        near.close()
        far.close()
    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    sock = socket.create_connection(listener.getsockname(), timeout=10)
    with guarded.context().wrap_socket(sock, server_hostname="127.0.0.1") as tls:
        secret = b"these bytes are nobody else's business " * 8
        tls.sendall(keys.hello(features=0))
        assert take_frame(tls).status == keys.OK
        tls.sendall(keys.frame(keys.WRITE, ident=1, registration=guarded.registration, address=guarded.address,
                               length=len(secret)) + secret)
        assert take_frame(tls).status == keys.OK
        tls.sendall(keys.frame(keys.READ, ident=2, registration=guarded.registration, address=guarded.address,
                               length=len(secret)))
        assert take_frame(tls).status == keys.OK
        assert v1.take(tls, len(secret)) == secret
    listener.close()
    whole = b"".join(seen)
    assert len(whole) > 2 * len(secret)
    assert secret[:20] not in whole and b"FRRY" not in whole


def test_key_and_tls_together(ferry, serve, fleet, tmp_path):
    path, _ = keys.make_key(tmp_path)
    server = serve(*fleet.good.use(), *keys.use(path), memory=("4MiB",))
    got = harness.bench(ferry, "--target", server.name, "--op", "mix", "--check", "--block", 4096, "--duration", 0.2,
                        *fleet.good.use(), *keys.use(path))
    assert got[0]["errors"] == 0
    status, _, err = bench(ferry, server.name, *fleet.good.use())
    assert status != 0 and "auth_key_file" in err, err


def test_connections_are_renewed_before_their_cipher_wears_out(ferry, guarded, fleet):
    got = harness.bench(ferry, "--target", guarded.name, "--op", "mix", "--check", "--block", 65536, "--batch", 2,
                        "--duration", 0.5, "--set", "transports.hp_tcp.tls_records_max=64", *fleet.good.use())
    assert got[0]["errors"] == 0 and got[0]["verified_bytes"] > 0
    opened = sum(w["sessions_opened"] for w in guarded.transport()["workers"])
    assert opened > 8, "only %d connections for %d operations" % (opened, got[0]["ops"])


def take_frame(sock):
    head = v1.take(sock, keys.FIXED.size)
    return keys.Frame(head + v1.take(sock, struct.unpack(">H", head[6:8])[0] - keys.FIXED.size))


# Who does not. Each attempt says how it ended; nothing of it is served.

def tls_ends(sock):
    """The stream ends without a byte of data: by an alert, a close or a reset."""
    try:
        sock.sendall(keys.hello(features=0))
        assert sock.recv(1) == b"", "something is said to a peer that was not let in"
    except (ssl.SSLError, ConnectionResetError, BrokenPipeError) as e:
        return str(e)
    return "end of stream"


def no_certificate(server, fleet, stranger):
    with server.connect(certificates.Certificate(None, None, None)) as sock:
        return tls_ends(sock)


def unknown_authority(server, fleet, stranger):
    with server.connect(stranger.good) as sock:
        return tls_ends(sock)


def expired(server, fleet, stranger):
    with server.connect(fleet.issue("expired", begin="-9 days", end="-1 day")) as sock:
        return tls_ends(sock)


def not_yet_valid(server, fleet, stranger):
    with server.connect(fleet.issue("early", begin="+2 days", end="+9 days")) as sock:
        return tls_ends(sock)


def another_purpose(server, fleet, stranger):
    """A certificate for servers only."""
    with server.connect(fleet.issue("servers", usage="serverAuth")) as sock:
        return tls_ends(sock)


def old_version(server, fleet, stranger):
    try:
        server.connect(version=ssl.TLSVersion.TLSv1_2)
    except (ssl.SSLError, ConnectionResetError) as e:
        return str(e)
    raise AssertionError("TLS 1.2 was accepted")


def another_protocol(server, fleet, stranger):
    try:
        server.connect(protocols=("h2", "http/1.1"))
    except (ssl.SSLError, ConnectionResetError) as e:
        return str(e)
    raise AssertionError("another protocol was accepted")


def no_protocol(server, fleet, stranger):
    with server.connect(protocols=()) as sock:
        return tls_ends(sock)


def plain_ferry(server, fleet, stranger):
    with keys.Greeting(*server.where) as one:
        one.send(keys.hello(features=0))
        got = one.take()
        assert (got.kind, got.status) == (keys.HELLO_REPLY, 14)
        one.ends()
        return "told that TLS is due"


def plain_v1(server, fleet, stranger):
    with v1.Client(*server.where) as client:
        client.send_request(v1.READ, server.registration, server.address, 64)
        assert client.response() == (v1.INTERNAL, 0, 0)
        assert client.ends()
        return "told in v1"


def plain_garbage(server, fleet, stranger):
    with socket.create_connection(server.where, timeout=10) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert sock.recv(1) == b""
        return "closed"


REFUSED = [
    (no_certificate, "certificate required", "tls"),
    (unknown_authority, "unknown ca", "tls"),
    (expired, "certificate expired", "tls"),
    (not_yet_valid, "bad certificate", "tls"),
    (another_purpose, "certificate", "tls"),
    (old_version, "version", "tls"),
    (another_protocol, "protocol", "tls"),
    (no_protocol, "", "tls"),
    (plain_ferry, "", "no_tls"),
    (plain_v1, "", "no_tls"),
    (plain_garbage, "", "no_tls"),
]


@pytest.mark.parametrize("attempt,says,reason", REFUSED, ids=[row[0].__name__ for row in REFUSED])
def test_who_is_not_of_the_fleet_is_refused(guarded, fleet, stranger, attempt, says, reason):
    served = guarded.served()
    for _ in range(3):
        told = attempt(guarded, fleet, stranger)
        assert says in told.lower().replace("_", " "), told
    assert guarded.refused() == {reason: 3}
    assert guarded.served() <= served + 3
    lines = guarded.warnings()
    assert len(lines) == 1 and "tls" in lines[0].lower(), lines
    assert "expired" in lines[0] or attempt is not expired


def test_a_good_initiator_beside_the_others_sees_no_error(ferry, guarded, fleet, stranger, start):
    good = start([ferry, "bench", "--json", "--target", guarded.name, "--op", "mix", "--check", "--block", 4096,
                  "--batch", 4, "--duration", 2, *fleet.good.use()])
    old = fleet.issue("old", begin="-9 days", end="-1 day")
    count = 0
    while good.alive():
        for attempt in (unknown_authority, no_certificate, plain_ferry, plain_v1, plain_garbage):
            attempt(guarded, fleet, stranger)
        with guarded.connect(old) as sock:
            tls_ends(sock)
        count += 6
    status, out, err = good.finish()
    got = harness.records(out)
    assert status == 0 and got[0]["errors"] == 0 and got[0]["verified_bytes"] > 0, err
    assert sum(guarded.refused().values()) == count >= 6
    assert len(guarded.warnings()) == 2, guarded.warnings()


def test_a_slow_handshake_is_ended_in_time(guard):
    server = guard("--set", "transports.hp_tcp.handshake_timeout_ms=300")
    for said in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"):
        with socket.create_connection(server.where, timeout=20) as sock:
            sock.sendall(said)
            begin = time.monotonic()
            try:
                assert sock.recv(1) == b""
            except ConnectionResetError:
                pass
            assert time.monotonic() - begin < 10 * harness.PATIENCE
    assert server.refused() == {"late": 3}


# What an initiator says.

def test_a_plain_initiator_is_told_the_remedy(ferry, guarded, start):
    status, _, err = bench(ferry, guarded.name)
    assert status != 0 and "set tls.cert, tls.key and tls.ca here" in err, err


def test_an_initiator_with_tls_refuses_a_plain_target(ferry, serve, fleet):
    server = serve(memory=("4MiB",))
    status, _, err = bench(ferry, server.name, *fleet.good.use())
    assert status != 0 and "set tls.cert, tls.key and tls.ca there" in err and "ERR_REFUSED" in err, err
    harness.wait_until(lambda: harness.fd_count(server.pid) > 0, 1, "the server lives")


def test_an_initiator_refuses_who_is_not_of_the_fleet(ferry, guarded, fleet, stranger):
    # Its own CA does not know the server's.
    status, _, err = bench(ferry, guarded.name, *stranger.good.use())
    assert status != 0 and "tls.ca" in err and "ERR_REFUSED" in err, err
    # It knows the server's CA, and the server does not know its.
    both = os.path.join(stranger.folder, "both.pem")
    with open(both, "w", encoding="ascii") as f:
        for name in (fleet.cert, stranger.cert):
            with open(name, encoding="ascii") as g:
                f.write(g.read())
    status, _, err = bench(ferry, guarded.name, *stranger.good.use(**{"tls.ca": both}))
    assert status != 0 and "tls.cert" in err and "unknown ca" in err and "ERR_REFUSED" in err, err


def test_an_initiator_looks_at_names(ferry, guard, fleet):
    elsewhere = fleet.issue("elsewhere", hosts=("IP:192.0.2.7", "DNS:elsewhere.example"))
    server = guard(certificate=elsewhere)
    status, _, err = bench(ferry, server.name, *fleet.good.use())
    assert status != 0 and "tls.verify_names" in err and "ERR_REFUSED" in err, err
    got = harness.bench(ferry, "--target", server.name, "--op", "read", "--block", 4096, "--duration", 0.2,
                        *fleet.good.use(**{"tls.verify_names": "false"}))
    assert got[0]["errors"] == 0


def test_the_data_port_is_checked_like_the_control_port(fleet, stranger, guard, start):
    """The document names another data port: one without TLS, and one of another fleet."""
    import http.server
    import threading
    real = guard()
    document = real.get("/v1/segment")
    plain = socket.create_server(("127.0.0.1", 0))
    other = socket.create_server(("127.0.0.1", 0))

    def serve_plain():
        while True:
            try:
                sock, _ = plain.accept()
            except OSError:
                return
            sock.recv(4096)
            sock.sendall(b"hello, this is plain text, and of no use to anybody")
            sock.close()

    def serve_other():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(stranger.good.cert, stranger.good.key)
        context.set_alpn_protocols(["ferry/1"])
        while True:
            try:
                sock, _ = other.accept()
                context.wrap_socket(sock, server_side=True).close()
            except ssl.SSLError:
                continue
            except OSError:
                return
    for target in (serve_plain, serve_other):
        threading.Thread(target=target, daemon=True).start()

    def shown(port):
        changed = json.loads(json.dumps(document))
        for pair in changed["detail"]["transport_attrs"]:
            attribute = json.loads(pair[1])
            attribute["endpoints"] = [{"host": "127.0.0.1", "port": port}]
            pair[1] = json.dumps(attribute)
        return json.dumps(changed).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(shown(Handler.port))
    control = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    control.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(fleet.good.cert, fleet.good.key)
    control.socket = context.wrap_socket(control.socket, server_side=True)
    threading.Thread(target=control.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    name = "127.0.0.1:%d" % control.server_address[1]
    try:
        for listener, says in ((plain, "does not speak TLS"), (other, "TLS handshake failed")):
            Handler.port = listener.getsockname()[1]
            client = start([harness.program("survivor"), name, 4096], stdin=subprocess.PIPE,
                           env=fleet.good.environment())
            assert client.line(20) == "ready"
            answer = client.ask("once", 20)
            assert answer.startswith("failed ERR_REFUSED") and says in answer, answer
            client.close()
    finally:
        control.shutdown()
        control.server_close()
        plain.close()
        other.close()


@pytest.mark.parametrize("what,says", [("expired", "expired"), ("stranger", "unable to get"), ("key", "not the key"),
                                       ("mode", "chmod 600"), ("encrypted", "without a password"),
                                       ("half", "tls.ca is missing")])
def test_an_engine_does_not_start_with_what_peers_would_refuse(ferry, fleet, stranger, tmp_path, what, says):
    used = certificates.Certificate(fleet.good.cert, fleet.good.key, fleet.good.ca)
    if what == "expired":
        used = fleet.issue("late", begin="-9 days", end="-1 day")
    elif what == "stranger":
        used = certificates.Certificate(stranger.good.cert, stranger.good.key, fleet.cert)
    elif what == "key":
        used.key = stranger.good.key
    elif what in ("mode", "encrypted"):
        used.key = str(tmp_path / "key.pem")
        certificates.openssl("pkey", "-in", fleet.good.key, "-out", used.key,
                             *(["-aes256", "-passout", "pass:secret"] if what == "encrypted" else []))
        os.chmod(used.key, 0o600 if what == "encrypted" else 0o640)
    arguments = used.use() if what != "half" else used.use()[:4]
    status, out, err = harness.run([ferry, "serve", "--listen", "127.0.0.1:0", "--memory", "1MiB", *arguments], 20)
    assert status != 0 and says in err and "ERR_CONFIG" in err, err
    with open(fleet.good.key, encoding="ascii") as f:
        assert f.read().splitlines()[1] not in out + err


# The control port.

def test_the_control_port_is_for_the_fleet_only(guarded, fleet, stranger):
    import http.client
    host, port = guarded.name.rsplit(":", 1)
    bad = [stranger.good, fleet.issue("past", begin="-9 days", end="-1 day"), certificates.Certificate(None, None, None)]
    for certificate in bad:
        connection = http.client.HTTPSConnection(host, int(port), timeout=10,
                                                 context=guarded.context(certificate, protocols=()))
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            connection.request("GET", "/health")
            connection.getresponse()
        connection.close()
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    with pytest.raises((OSError, http.client.HTTPException)):
        connection.request("GET", "/health")
        connection.getresponse()
    connection.close()
    with pytest.raises((ssl.SSLError, OSError)):
        sock = socket.create_connection((host, int(port)), timeout=10)
        guarded.context(version=ssl.TLSVersion.TLSv1_2, protocols=()).wrap_socket(sock, server_hostname=host)
    refused = guarded.get("/v1/process")["control_refused"]
    assert refused["tls"] == 2 and refused["no_tls"] == 3, refused
    assert len(guarded.warnings("control")) == 2
    assert guarded.get("/health")["status"] == "ok"


def test_descriptors_and_memory_stay_flat_under_bad_connections(guarded, fleet, stranger):
    for attempt in (unknown_authority, plain_ferry, plain_garbage, no_certificate):
        attempt(guarded, fleet, stranger)
    base = harness.fd_count(guarded.server.pid)
    before = harness.resident_bytes(guarded.server.pid)
    for _ in range(40):
        for attempt in (unknown_authority, plain_ferry, plain_garbage, no_certificate):
            attempt(guarded, fleet, stranger)
    harness.wait_until(lambda: harness.fd_count(guarded.server.pid) <= base, 10, "descriptors are back")
    assert harness.resident_bytes(guarded.server.pid) < before + (32 << 20)
