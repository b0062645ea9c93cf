# SPDX-License-Identifier: Apache-2.0
"""ferry against the independent v1 speaker, in both roles, every row of the published tables."""
import select
import socket
import subprocess

import pytest

import harness
import v1

MIB = 1 << 20
ADDRESS, REGISTRATION = 0x7f0000001000, 0xfedcba9876543210


@pytest.fixture
def target(serve):
    return serve("--set", "transports.hp_tcp.max_transfer_bytes=2MiB",
                 "--set", "transports.hp_tcp.progress_timeout_ms=1000", memory=("4MiB",))


@pytest.fixture
def connect(target):
    """connect() opens a v1 connection to the ferry server; all are closed afterwards."""
    opened, where = [], target.data_endpoint()

    def one():
        client = v1.Client(*where)
        opened.append(client)
        return client
    yield one
    for client in opened:
        client.close()


# A v1 client drives a ferry server.

@pytest.mark.parametrize("length", [1, 4096, MIB - 1, MIB, MIB + 1, 2 * MIB])
def test_write_then_read_on_one_connection(target, connect, length):
    address, _, registration = target.registration()
    client, data = connect(), v1.pattern(length, length)
    for offset in (0, 1, 4095):
        client.write(registration, address + offset, data)
        assert client.read(registration, address + offset, length) == data
    # The neighbours of the range are as before.
    assert client.read(registration, address + 4095 + length, 16) == bytes(16)


def test_one_connection_serves_many_requests(target, connect):
    address, _, registration = target.registration()
    client = connect()
    for i in range(200):
        data = v1.pattern(i, 1000 + i)
        client.write(registration, address + 8192 * (i % 16), data)
        assert client.read(registration, address + 8192 * (i % 16), len(data)) == data


def test_pipelined_reads_are_answered_in_order(target, connect):
    address, _, registration = target.registration()
    client = connect()
    data = v1.pattern(9, 64 * 4096)
    client.write(registration, address, data)
    ids = [client.send_request(v1.READ, registration, address + 4096 * i, 4096) for i in range(64)]
    for i, request_id in enumerate(ids):
        assert client.response() == (v1.OK, request_id, 4096)
        assert v1.take(client.sock, 4096) == data[4096 * i:4096 * i + 4096]


BROKEN = [
    # (what, fields of the request, status, whether the id is echoed)
    ("wrong magic", dict(magic=0x58585858), v1.INTERNAL, False),
    ("version 2", dict(version=2), v1.BAD_VERSION, False),
    ("version 0", dict(version=0), v1.BAD_VERSION, False),
    ("flags", dict(flags=1), v1.INTERNAL, False),
    ("reserved", dict(reserved=1), v1.INTERNAL, False),
    ("flags before opcode", dict(flags=1, opcode=9), v1.INTERNAL, False),
    ("opcode 0", dict(opcode=0), v1.BAD_OPCODE, False),
    ("opcode 3", dict(opcode=3), v1.BAD_OPCODE, False),
    ("length 0", dict(length=0), v1.BAD_LENGTH, False),
    ("address overflow", dict(address=(1 << 64) - 4096, length=8192), v1.BAD_LENGTH, False),
    ("longer than allowed", dict(length=2 * MIB + 1), v1.BAD_LENGTH, True),
    ("below the buffer", dict(address=-1), v1.RANGE, True),
    ("beyond the buffer", dict(address=4 * MIB - 1, length=2), v1.RANGE, True),
    ("another registration", dict(registration=1), v1.STALE, True),
]


@pytest.mark.parametrize("opcode", [v1.READ, v1.WRITE])
@pytest.mark.parametrize("what,fields,status,echoed", BROKEN, ids=[row[0].replace(" ", "-") for row in BROKEN])
def test_each_error_row(target, connect, opcode, what, fields, status, echoed):
    address, length, registration = target.registration()
    values = dict(opcode=opcode, registration=registration, address=0, length=64)
    values.update(fields)
    if values["address"] < (1 << 63):
        values["address"] += address
    client = connect()
    # A body follows where the server reads one: after a WRITE that it could decode and that is not too long.
    drained = values["opcode"] == v1.WRITE and status in (v1.RANGE, v1.STALE, v1.PERMISSION)
    request_id = client.send_request(request_id=0x1234, body=bytes(values["length"]) if drained else b"", **values)
    assert client.response() == (status, request_id if echoed else 0, 0), what
    assert client.ends(), "the stream must end after " + what
    # Nothing else is disturbed.
    assert connect().read(registration, address, 64) == bytes(64)
    assert length == 4 * MIB


def test_a_write_is_answered_after_its_last_byte(target, connect):
    address, _, registration = target.registration()
    client = connect()
    for length in (4096, MIB):
        data = v1.pattern(length, length)
        request = client.send_request(v1.WRITE, registration, address, length, body=data[:-1])
        assert not select.select([client.sock], [], [], 0.3)[0]
        client.sock.sendall(data[-1:])
        assert client.response() == (v1.OK, request, length)
        assert client.read(registration, address, length) == data


def test_body_of_a_refused_write_is_never_taken_for_a_request(target, connect):
    address, _, registration = target.registration()
    client = connect()
    frame = v1.REQUEST.pack(v1.MAGIC, 1, v1.READ, 0, 7, registration, address, 16, 0)
    body = frame * (MIB // len(frame))
    client.send_request(v1.WRITE, 12345, address, len(body), request_id=5, body=body[:-1])
    # The answer comes after the last byte of the body, not before.
    assert not select.select([client.sock], [], [], 0.3)[0]
    client.sock.sendall(body[-1:])
    assert client.response() == (v1.STALE, 5, 0)
    assert client.ends()
    assert connect().read(registration, address, 4096) == bytes(4096)


def test_refused_write_with_a_stalled_body_is_given_up(target, connect):
    address, _, _ = target.registration()
    base, _ = harness.settled_uses(target.pid)
    client = connect()
    client.send_request(v1.WRITE, 12345, address, 4096, body=bytes(100))
    harness.wait_until(lambda: harness.fd_count(target.pid) > base, 5, "the connection is accepted")
    assert client.ends(5), "the progress timeout must close it"
    harness.wait_until(lambda: harness.fd_count(target.pid) <= base, 5, "the connection's descriptor is closed")


@pytest.mark.parametrize("sent", [0, 1, 47])
def test_a_silent_connection_is_closed_by_the_progress_timeout(connect, sent):
    client = connect()
    client.sock.sendall(v1.REQUEST.pack(v1.MAGIC, 1, v1.READ, 0, 1, 1, 1, 1, 0)[:sent])
    began = harness.now()
    assert client.ends(5)
    assert 0.7 < harness.now() - began < 3 * harness.PATIENCE


def test_an_idle_connection_stays_after_its_first_request(target, connect):
    """There is no idle limit on the serving side between requests."""
    address, _, registration = target.registration()
    client = connect()
    assert client.read(registration, address, 8) == bytes(8)
    assert not client.ends(2.5)
    assert client.read(registration, address, 8) == bytes(8)


def test_connections_beyond_the_limit_are_closed_at_once(serve):
    server = serve("--set", "transports.hp_tcp.max_connections=3", "--set", "transports.hp_tcp.connections_per_peer=2",
                   memory=("1MiB",))
    address, _, registration = server.registration()
    host, port = server.data_endpoint()
    with v1.Client(host, port) as a, v1.Client(host, port) as b, v1.Client(host, port) as c:
        for client in (a, b, c):
            assert client.read(registration, address, 8) == bytes(8)
        with v1.Client(host, port) as refused:
            assert refused.ends(5)
        assert a.read(registration, address, 8) == bytes(8)
        c.close()

        def served():
            with v1.Client(host, port) as again:
                try:
                    return again.read(registration, address, 8) == bytes(8)
                except (EOFError, ConnectionError):
                    return False
        harness.wait_until(served, 5, "a place is free again")


def test_a_reset_in_the_middle_of_an_answer_frees_everything(target, connect):
    address, _, registration = target.registration()
    connect().read(registration, address, 8)
    base, _ = harness.settled_uses(target.pid)
    for _ in range(20):
        client = connect()
        client.send_request(v1.READ, registration, address, 2 * MIB)
        client.sock.recv(1000)
        client.reset()
    harness.wait_until(lambda: harness.fd_count(target.pid) <= base, 5, "descriptors are back to where they were")
    assert connect().read(registration, address, 8) == bytes(8)


def test_a_write_that_is_cut_off_changes_only_its_range(target, connect):
    address, _, registration = target.registration()
    client = connect()
    client.send_request(v1.WRITE, registration, address + 4096, MIB, body=b"\xee" * 5000)
    client.reset()
    checker = connect()
    harness.wait_until(lambda: checker.read(registration, address, 4096) == bytes(4096), 2, "the bytes before")
    assert checker.read(registration, address + 4096 + MIB, 4096) == bytes(4096)


# A ferry client drives a v1 server.

def v1_server(length=16 * MIB, **options):
    return v1.Server([v1.Buffer(ADDRESS, length, REGISTRATION)], **options)


def assert_lanes_persist(server):
    """Four lanes, and one more for each that a busy machine held up for so long that it was given up."""
    assert server.connections <= 4 or server.connections * 8 < len(server.requests)


@pytest.mark.parametrize("reactor", ["uring", "epoll"])
@pytest.mark.parametrize("block", [1, 4096, MIB - 1, MIB, MIB + 1])
def test_bench_drives_a_v1_server(ferry, reactor, block):
    with v1_server() as server:
        got = harness.bench(ferry, "--target", server.name, "--transport", "hp_tcp", "--op", "mix", "--check",
                            "--block", block, "--batch", 4, "--duration", 0.3, "--set", "reactor=" + reactor)
        assert got[0]["errors"] == 0 and got[0]["verified_bytes"] > 0
        assert {request[0] for request in server.requests} == {v1.READ, v1.WRITE}
        assert_lanes_persist(server)
        assert all(request[1] != 0 for request in server.requests), "request id 0 is no id"


@pytest.mark.parametrize("reactor", ["uring", "epoll"])
@pytest.mark.parametrize("op", ["read", "write", "mix"])
def test_pieces_go_to_a_v1_server_one_by_one(ferry, reactor, op):
    """There are no lists in v1: each piece is a request of its own, and the task is whole all the same."""
    with v1_server() as server:
        got = harness.bench(ferry, "--target", server.name, "--transport", "hp_tcp", "--op", op, "--check",
                            "--scatter", 50, "--block", 500000, "--batch", 3, "--duration", 0.3,
                            "--set", "reactor=" + reactor)
        assert got[0]["errors"] == 0 and got[0]["verified_bytes"] > 0
        assert 10000 in {request[3] for request in server.requests}
        assert_lanes_persist(server)


def test_no_write_is_followed_by_another_request_before_its_answer(ferry):
    """Every error closes a v1 stream, so what lies behind an unanswered WRITE would be lost or doubled."""
    class Watching(v1.Server):
        behind = 0

        def _reply(self, sock, status, request_id, committed):
            with self.lock:
                last = [r for r in self.requests if r[1] == request_id]
            if last and last[-1][0] == v1.WRITE and select.select([sock], [], [], 0.002)[0]:
                self.behind += 1
            return super()._reply(sock, status, request_id, committed)

    with Watching([v1.Buffer(ADDRESS, 16 * MIB, REGISTRATION)]) as server:
        got = harness.bench(ferry, "--target", server.name, "--op", "mix", "--check", "--block", 4096, "--batch", 16,
                            "--duration", 0.5)
        assert got[0]["errors"] == 0
        assert server.behind == 0


@pytest.fixture
def survivor(start):
    """A program of ours as initiator: `once` WRITEs a pattern, READs it back and compares."""
    def begin(name, length=4096, **options):
        process = start([harness.program("survivor"), name, length], stdin=subprocess.PIPE, **options)
        assert process.line(20) == "ready"
        return process
    return begin


@pytest.mark.parametrize("reactor", ["uring", "epoll"])
@pytest.mark.parametrize("length", [1, 4096, MIB - 1, MIB, MIB + 1, 16 * MIB])
def test_a_program_of_ours_drives_a_v1_server(survivor, length, reactor):
    with v1_server() as server:
        client = survivor(server.name, length, env={"FERRY_REACTOR": reactor})
        for _ in range(3):
            assert client.ask("once", 20) == "ok"
        assert [r[0] for r in server.requests].count(v1.READ) >= 3
        assert all(request[1] != 0 for request in server.requests), "request id 0 is no id"
        assert sum(r[3] for r in server.requests if r[0] == v1.WRITE) == 3 * length


def test_a_write_without_an_answer_is_never_sent_again(survivor):
    """The outcome is unknown: reported as such, and not repeated."""
    with v1_server() as server:
        client = survivor(server.name)
        server.answer = lambda status, request_id, committed: None
        assert client.ask("once", 20).startswith("failed ERR_OUTCOME_UNKNOWN")
        assert [r[0] for r in server.requests] == [v1.WRITE]
        # The engine is fine, and so is the next WRITE.
        del server.answer
        assert client.ask("once", 20) == "ok"


@pytest.mark.parametrize("opcode,status", [(v1.READ, "ERR_PROTOCOL"), (v1.WRITE, "ERR_OUTCOME_UNKNOWN")])
@pytest.mark.parametrize("what", ["reserved", "magic", "version", "id", "committed", "status"])
def test_a_broken_answer_fails_the_request(survivor, what, opcode, status):
    with v1_server() as server:
        def wrong(good, request_id, committed):
            fields = [v1.MAGIC, 1, good, request_id, committed, 0]
            if server.requests[-1][0] == opcode:
                at, value = {"reserved": (5, 1), "magic": (0, 1), "version": (1, 2), "id": (3, request_id ^ 1),
                             "committed": (4, committed - 1), "status": (2, 9)}[what]
                fields[at] = value
            return v1.RESPONSE.pack(*fields)

        client = survivor(server.name)
        server.answer = wrong
        answer = client.ask("once", 20)
        assert answer.startswith("failed " + status), answer
        assert [r[0] for r in server.requests].count(v1.WRITE) == 1
        del server.answer
        assert client.ask("once", 20) == "ok"


@pytest.mark.parametrize("length", [4096, MIB])
def test_a_read_that_is_cut_off_fails(survivor, length):
    """The stream ends in the middle of the payload, each time."""
    with v1_server() as server:
        client = survivor(server.name, length)
        server.cut_reads_at = length // 2
        answer = client.ask("once", 20)
        assert answer.startswith("failed ERR_PEER_GONE"), answer
        server.cut_reads_at = None
        assert client.ask("once", 20) == "ok"


@pytest.mark.parametrize("status,name", [(v1.RANGE, "ERR_RANGE"), (v1.PERMISSION, "ERR_PERMISSION"),
                                         (v1.SHUTTING_DOWN, "ERR_PEER_CLOSING"), (v1.BAD_LENGTH, "ERR_REFUSED"),
                                         (v1.BAD_OPCODE, "ERR_REFUSED")])
def test_each_error_answer_has_its_status(survivor, status, name):
    with v1_server() as server:
        client = survivor(server.name)
        server.refuse_with = status
        answer = client.ask("once", 20)
        assert answer.startswith("failed " + name), answer
        server.refuse_with = v1.OK
        assert client.ask("once", 20) == "ok"


def test_a_stale_registration_is_refreshed_once_and_retried(survivor):
    """The server registers its memory anew after the description was read."""
    with v1_server() as server:
        client = survivor(server.name)
        assert client.ask("once", 20) == "ok"
        server.buffers[0].registration ^= 0xff
        asked = server.documents_shown
        assert client.ask("once", 20) == "ok"
        assert server.documents_shown == asked + 1
        # A registration that stays stale is the end: one refresh, no loop.
        server.refuse_with = v1.STALE
        before = len(server.requests)
        answer = client.ask("once", 20)
        assert answer.startswith("failed ERR_STALE_KEY"), answer
        assert len(server.requests) - before <= 2


def test_a_range_beyond_the_published_limit_is_not_sent(ferry):
    with v1_server(max_transfer_bytes=65536) as server:
        status, _, err = harness.run([ferry, "bench", "--json", "--target", server.name, "--op", "read",
                                      "--block", MIB, "--duration", 0.2], 30)
        assert status != 0, err
        assert not [r for r in server.requests if r[3] > 65536]


def test_nagle_is_off_on_accepted_sockets(target, connect):
    """Asked of the very sockets of the server."""
    address, _, registration = target.registration()
    connect().read(registration, address, 8)
    try:
        sockets = harness.sockets_of(target.pid)
    except (OSError, AttributeError) as e:
        pytest.skip("the sockets of another process cannot be looked at here: %s" % e)
    data_port = target.data_endpoint()[1]
    try:
        accepted = [s for s in sockets if s.getsockname()[1] == data_port]
        assert accepted
        for one in accepted:
            assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    finally:
        for one in sockets:
            one.close()
