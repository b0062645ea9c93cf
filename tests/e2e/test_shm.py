# SPDX-License-Identifier: Apache-2.0
"""Two processes over shm: bytes, leases, deaths, permissions, and whoever must not be let in.

Both kinds of memory: what the engine allocated, which is mapped, and what the caller brought, which the kernel copies.
"""
import json
import os
import platform
import signal
import socket
import subprocess
import tempfile
import sys
import time

import pytest

import harness

ON = ("--set", "transports.shm.enable=true")
FORCED = {"FERRY_FORCE_TRANSPORT": "shm"}
BESIDE = {"FERRY_TRANSPORTS_SHM_ENABLE": "true"}
# One chunk a request: nearly always a copy is under way.
WHOLE = {"FERRY_FORCE_TRANSPORT": "shm", "FERRY_TRANSPORTS_SHM_CHUNK_BYTES": "64MiB",
         "FERRY_TRANSPORTS_SHM_SPLIT_BYTES": "1GiB"}
LENGTH = 64 << 20
ROUNDS = 40 if harness.LONG else 3
LENDER, SURVIVOR = harness.program("lender"), harness.program("survivor")
KINDS = pytest.mark.parametrize("kind", ["alloc", "lend"])
# The number of process_vm_readv; that of process_vm_writev is the next one.
READV = {"x86_64": 310, "aarch64": 270}.get(platform.machine())

# Lets the program that follows do everything but reach the memory of another process.
WITHOUT_VM = """
import ctypes, os, struct, sys
code = [(0x20, 0, 0, 0), (0x35, 0, 2, %d), (0x25, 1, 0, %d), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)]
packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(packed)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execvp(sys.argv[1], sys.argv[1:])
"""


def lender(start, kind, permission="read-write", **options):
    process = start([LENDER, LENGTH], stdin=subprocess.PIPE, **{"env": FORCED, **options})
    process.name = process.line(20)
    assert process.ask("%s %s" % (kind, permission)) == "ok"
    return process


def survivor(start, name, length=LENGTH, **options):
    process = start([SURVIVOR, name, length], stdin=subprocess.PIPE, **{"env": FORCED, **options})
    assert process.line(20) == "ready", process.stderr()
    return process


def transport(name):
    """What the engine of that name says about its shm."""
    report = json.loads(harness.http_get(name, "/v1/transports"))
    return next(one for one in report["transports"] if one["name"] == "shm")


@pytest.mark.parametrize("reactor,kind", [("uring", "alloc"), ("epoll", "lend")])
def test_every_byte_arrives(ferry, serve, tmp_path, reactor, kind):
    setting = [*ON, "--set", "reactor=" + reactor]
    if kind == "alloc":
        server = serve(*setting, memory=("64MiB",))
    else:
        brought = tmp_path / "brought"
        brought.write_bytes(bytes(LENGTH))
        server = serve(*setting, "--load", brought, memory=())
    for op in ("read", "write"):
        got = harness.bench(ferry, "--target", server.name, "--transport", "shm", "--op", op, "--check",
                            "--block", "4096..33554432", "--duration", 0.5 if harness.LONG else 0.02,
                            "--warmup", 0.01, *setting)
        assert [record["block"] for record in got] == [4096 << i for i in range(14)]
        for record in got:
            assert record["errors"] == 0 and record["transport"] == "shm" and record["reactor"] == reactor
            assert record["verified_bytes"] >= record["bytes"] > 0
            lane = record["lanes"][0]
            assert lane["bytes"] >= record["bytes"]
    assert server.stop() == 0, server.stderr()


def mappings(pid, what):
    """(permissions, line) of the mappings whose name contains it."""
    with open("/proc/%d/maps" % pid, encoding="ascii", errors="replace") as f:
        return [(line.split()[1], line) for line in f if what in line]


def test_the_way_is_the_one_that_the_memory_asks_for(start):
    for kind in ("alloc", "lend"):
        target = lender(start, kind)
        client = survivor(start, target.name)
        assert client.ask("once", 20) == "ok"
        assert bool(mappings(client.pid, "memfd:ferry-memory")) == (kind == "alloc")


@KINDS
def test_memory_is_quiet_once_it_is_unregistered(start, kind):
    target = lender(start, kind)
    client = survivor(start, target.name, env=WHOLE)
    for i in range(ROUNDS):
        client.tell("stream")
        assert client.line(20) == "streaming", "round %d" % i
        time.sleep(0.003 * i)
        took = target.ask("take 0", 20)
        assert took.startswith("ok "), "round %d: %s" % (i, took)
        assert client.line(20).startswith("failed "), "round %d" % i
        assert target.ask(kind + " read-write") == "ok"
        assert client.ask("open " + target.name, 20) == "ok", "round %d" % i


@KINDS
def test_a_dead_initiator_holds_nothing(start, kind):
    target = lender(start, kind)
    died = 0
    for i in range(ROUNDS + 8):
        client = survivor(start, target.name, env=WHOLE)
        client.tell("stream")
        assert client.line(20) == "streaming", "round %d" % i
        harness.wait_until(lambda: any(peer["copies"] for peer in transport(target.name)["served"]), 10,
                           "a copy is under way")
        client.kill()
        took = target.ask("take 0", 20)
        assert took.startswith("ok "), "round %d: %s" % (i, took)
        assert int(took.split()[1]) < 1500 * harness.PATIENCE, "round %d: %s" % (i, took)
        harness.wait_until(lambda: transport(target.name)["served"] == [], 5, "nobody is served any more")
        died = transport(target.name)["peers_died_copying"]
        assert target.ask(kind + " read-write") == "ok"
        if died and i + 1 >= ROUNDS:
            break
    assert died, "in no round the initiator was killed in the middle of a copy"


@KINDS
def test_a_dead_target_is_noticed_and_its_successor_is_found(start, ferry, processes, tmp_path, kind):
    brought = tmp_path / "brought"
    brought.write_bytes(bytes(LENGTH))
    memory = {"memory": ("64MiB",)} if kind == "alloc" else {"memory": ()}
    load = () if kind == "alloc" else ("--load", brought)

    def begin(listen):
        server = harness.Serve(ferry, *ON, *load, listen=listen, **memory)
        processes.append(server)
        return server
    server = begin("127.0.0.1:0")
    name = server.name
    client = survivor(start, name)
    base = None
    for i in range(ROUNDS):
        client.tell("stream")
        assert client.line(20) == "streaming", "round %d" % i
        if i == 1:
            base = harness.settled_uses(client.pid)
        time.sleep(0.01 * i)
        began = harness.now()
        server.kill()
        answer = client.line(20)
        assert answer.startswith("failed "), answer
        assert harness.now() - began < 1 * harness.PATIENCE, answer
        server = begin(name)
        assert client.ask("open " + name, 20) == "ok", "round %d" % i
        assert client.ask("once", 20) == "ok", "round %d" % i
    harness.wait_until(lambda: harness.fd_count(client.pid) <= base[0] and harness.thread_count(client.pid) <= base[1],
                       5, "descriptors and threads are back to %r" % (base,))


def test_read_only_memory_cannot_be_written(start):
    target = lender(start, "alloc", "read-only")
    client = survivor(start, target.name)
    assert client.ask("time read 1048576 3", 20).startswith("ok ")
    refused = client.ask("time write 4096 1", 20)
    assert refused.startswith("failed ERR_PERMISSION"), refused
    # What the client got is mapped for reading, and no process can map it otherwise.
    theirs = mappings(client.pid, "memfd:ferry-memory")
    assert theirs and all(permissions == "r--s" for permissions, _ in theirs), theirs
    for place in os.listdir("/proc/%d/fd" % target.pid):
        path = "/proc/%d/fd/%s" % (target.pid, place)
        if "memfd:ferry-memory" in os.readlink(path):
            with pytest.raises(OSError):
                os.pwrite(os.open(path, os.O_RDWR), b"x", 0)
    # Brought memory is refused by what the description says.
    lent = lender(start, "lend", "read-only")
    assert client.ask("open " + lent.name, 20) == "ok"
    assert client.ask("time read 1048576 3", 20).startswith("ok ")
    assert client.ask("time write 4096 1", 20).startswith("failed ERR_PERMISSION")


def test_memory_that_went_is_not_kept_by_a_peer(start):
    """An initiator that sits idle does not hold the target's pages."""
    target = lender(start, "alloc")
    client = survivor(start, target.name)
    assert client.ask("once", 20) == "ok"
    assert mappings(client.pid, "memfd:ferry-memory")
    assert target.ask("take 1000", 20).startswith("ok ")
    harness.wait_until(lambda: not mappings(client.pid, "memfd:ferry-memory"), 5, "the mapping is gone")


def test_pid_namespaces(start):
    apart = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if os.geteuid() != 0 or subprocess.run([*apart, "true"], capture_output=True, timeout=30).returncode != 0:
        pytest.skip("a PID namespace with its own /proc cannot be made here")
    for kind in ("alloc", "lend"):
        # Seen from outside the target has a number, and the cookie says that it is the right one.
        inside = lender(start, kind, prefix=apart)
        client = survivor(start, inside.name)
        assert client.ask("once", 20) == "ok", kind
        # From inside nobody outside has one: what can be mapped is reached all the same.
        outside = lender(start, kind)
        client = survivor(start, outside.name, prefix=apart)
        answer = client.ask("once", 20)
        if kind == "alloc":
            assert answer == "ok"
        else:
            assert answer.startswith("failed ERR_UNSUPPORTED") and "unavailable for this buffer" in answer, answer


@pytest.mark.skipif(READV is None, reason="the number of process_vm_readv is not known on this machine")
def test_where_the_kernel_forbids_it_the_transport_passes_on(start):
    sandbox = (sys.executable, "-c", WITHOUT_VM % (READV, READV + 1))
    target = lender(start, "alloc")
    client = survivor(start, target.name, prefix=sandbox)
    assert client.ask("once", 20) == "ok"
    lent = lender(start, "lend")
    assert client.ask("open " + lent.name, 20) == "ok"
    answer = client.ask("once", 20)
    assert answer.startswith("failed ERR_UNSUPPORTED") and "unavailable for this buffer" in answer, answer
    assert "process_vm_readv" in answer, answer


def test_with_hp_tcp_beside_it_shm_is_chosen_once_the_peers_have_met(start):
    target = lender(start, "alloc", env=BESIDE)
    client = survivor(start, target.name, env=BESIDE)
    assert client.ask("stream", 20) == "streaming"
    harness.wait_until(lambda: any(peer["copies"] for peer in transport(target.name)["served"]), 10,
                       "the requests go over shm")


@pytest.mark.skipif(READV is None, reason="the number of process_vm_readv is not known on this machine")
def test_where_the_kernel_forbids_it_hp_tcp_takes_the_request(start):
    target = lender(start, "lend", env=BESIDE)
    client = survivor(start, target.name, env=BESIDE, prefix=(sys.executable, "-c", WITHOUT_VM % (READV, READV + 1)))
    harness.wait_until(lambda: transport(target.name)["served"], 10, "the peers have met")
    for _ in range(3):
        assert client.ask("once", 20) == "ok"


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user one has to be root")
def test_another_user_is_refused(ferry, start):
    other = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    target = lender(start, "alloc", prefix=other)
    status, _, err = harness.run([ferry, "bench", "--target", target.name, "--transport", "shm", "--block", "4096",
                                  "--duration", "0.05"], 30)
    assert status != 0 and "not reachable over shm" in err, err
    # And on the socket, whatever a description says.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(5)
        s.connect("\0" + transport(target.name)["socket"][1:])
        assert b"belongs to user 0" in s.recv(4096)
        assert s.recv(4096) == b""
    assert transport(target.name)["peers_refused"] == 1


def test_what_is_no_message_ends_the_visit(start):
    target = lender(start, "alloc")
    path = "\0" + transport(target.name)["socket"][1:]
    header = b"fsm1" + (1).to_bytes(4, "big")
    visits = [b"x", b"fsm1", header + (99).to_bytes(4, "big"), header + (1).to_bytes(4, "big") + bytes(32),
              header + (4).to_bytes(4, "big") + bytes(12), bytes(4096), b"fsm1" + bytes(200)]
    for visit in visits:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(5)
            s.connect(path)
            s.send(visit)
            said = s.recv(4096)
            assert b"does not belong here" in said or said == b"", (visit, said)
    harness.wait_until(lambda: transport(target.name)["served"] == [], 5, "the visitors are forgotten")
    client = survivor(start, target.name)
    assert client.ask("once", 20) == "ok"


def test_a_socket_in_a_folder(start):
    """A path of a socket is short, so the folder's name must be too."""
    with tempfile.TemporaryDirectory(prefix="ferry-", dir="/tmp") as folder:
        env = {"FERRY_TRANSPORTS_SHM_SOCKET_DIR": folder, **FORCED}
        target = lender(start, "lend", env=env)
        assert [name for name in os.listdir(folder) if name.startswith("ferry-shm-")]
        client = survivor(start, target.name)
        assert client.ask("once", 20) == "ok"
        target.child.stdin.close()
        target.child.stdin = None
        assert target.finish(10)[0] == 0
        assert os.listdir(folder) == []


def test_a_stopped_peer_makes_unregister_busy_and_not_forever(start):
    """It may be in the middle of a copy, so the range stays; when it goes on, or dies, the range is free."""
    target = lender(start, "lend")
    client = survivor(start, target.name, env=WHOLE)
    client.tell("stream")
    assert client.line(20) == "streaming"
    busy = 0
    for _ in range(20):
        client.pause()
        if any(peer["copies"] for peer in transport(target.name)["served"]):
            answer = target.ask("take 0", 20)
            assert answer.startswith("failed ERR_BUSY"), answer
            busy += 1
            break
        client.signal(signal.SIGCONT)
        time.sleep(0.01)
    client.signal(signal.SIGCONT)
    assert target.ask("take 1000", 20).startswith("ok ")
    assert busy, "it was never stopped in the middle of a copy"
