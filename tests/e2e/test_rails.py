# SPDX-License-Identifier: Apache-2.0
"""Rails on loopback, whose addresses are all this host's: where they are published, which connection
leaves from where, and which piece of a request takes which of them."""
import struct
import subprocess

import pytest

import harness
import relay as relays
import v1

MIB = 1 << 20
ADDRESS, REGISTRATION = 0x7f0000001000, 0xfedcba9876543210
RAILS = "transports.hp_tcp.rail_addresses="
FAR, NEAR = ["127.0.0.1", "127.0.0.2", "127.0.0.5"], ["127.0.0.3", "127.0.0.4", "127.0.0.6"]


def rails(addresses):
    return ["--set", RAILS + ",".join(addresses)]


def environment(addresses, **more):
    """The same for a program of ours that reads the environment."""
    env = {"FERRY_TRANSPORTS_HP_TCP_RAIL_ADDRESSES": ",".join(addresses)}
    env.update({"FERRY_TRANSPORTS_HP_TCP_" + key.upper(): str(value) for key, value in more.items()})
    return env


@pytest.fixture
def survivor(start):
    """A program of ours as initiator: `once` WRITEs a pattern, READs it back and compares."""
    def begin(name, length, **options):
        process = start([harness.program("survivor"), name, length], stdin=subprocess.PIPE, **options)
        assert process.line(20) == "ready"
        return process
    return begin


def by_rail(record):
    """Bytes per rail of a benchmark record."""
    total = {}
    for lane in record["lanes"]:
        total[lane["rail"]] = total.get(lane["rail"], 0) + lane["bytes"]
    return total


def test_each_rail_is_published_and_listened_at(serve):
    server = serve(*rails(FAR), "--set", "transports.hp_tcp.advertise_address=127.0.0.9")
    endpoints = harness.hp_attribute(server.document())["endpoints"]
    assert [e["host"] for e in endpoints] == FAR and len({e["port"] for e in endpoints}) == 1
    address, _, registration = server.registration()
    for endpoint in endpoints:
        with v1.Client(endpoint["host"], endpoint["port"]) as client:
            client.write(registration, address, v1.pattern(1, 5000))
            assert client.read(registration, address, 5000) == v1.pattern(1, 5000)
    # Nowhere else.
    with pytest.raises(ConnectionRefusedError):
        v1.Client("127.0.0.9", endpoints[0]["port"])


def test_a_wildcard_beside_rails_listens_everywhere(serve):
    server = serve(*rails(FAR), "--set", "transports.hp_tcp.bind_address=0.0.0.0")
    port = harness.hp_attribute(server.document())["endpoints"][0]["port"]
    v1.Client("127.0.0.9", port).close()


def test_a_rail_that_is_not_this_hosts_is_refused_by_name(ferry):
    status, _, err = harness.run([ferry, "serve", "--listen", "127.0.0.1:0", "--memory", "1MiB",
                                  *rails(["127.0.0.1", "192.0.2.77"])], 20)
    assert status != 0 and "192.0.2.77" in err, err


@pytest.mark.parametrize("slicing", ["dynamic", "static"])
@pytest.mark.parametrize("reactor", ["uring", "epoll"])
def test_every_rail_carries_its_part(ferry, serve, reactor, slicing):
    setting = ["--set", "reactor=" + reactor, "--set", "transports.hp_tcp.slicing=" + slicing]
    server = serve(*rails(FAR[:2]), *setting, memory=("32MiB",))
    for op in ("read", "write"):
        got = harness.bench(ferry, "--target", server.name, "--transport", "hp_tcp", "--op", op, "--check", "--block",
                            16 * MIB, "--duration", 0.2, *setting, *rails(NEAR[:2]))[0]
        assert got["errors"] == 0 and got["verified_bytes"] > 0
        carried = by_rail(got)
        assert sum(carried.values()) == got["moved_bytes"]
        if slicing == "dynamic" or op == "read":
            # Every request gives each rail something; loopback is as fast on both.
            assert set(carried) == {0, 1} and min(carried.values()) > 0, carried


@pytest.mark.parametrize("near,far", [(0, 2), (2, 0), (1, 2), (2, 1), (2, 3), (3, 2)])
def test_the_numbers_of_rails_may_differ(ferry, serve, near, far):
    server = serve(*(rails(FAR[:far]) if far else []), memory=("32MiB",))
    got = harness.bench(ferry, "--target", server.name, "--op", "mix", "--check", "--block", "1048577..16777216",
                        "--duration", 0.1, *(rails(NEAR[:near]) if near else []))
    assert all(r["errors"] == 0 and r["verified_bytes"] > 0 for r in got)
    assert len(by_rail(got[-1])) >= max(near, far)


# Towards a v1 peer the published rules hold.

def published_server(count=2, length=16 * MIB):
    return v1.Server([v1.Buffer(ADDRESS, length, REGISTRATION)], rails=FAR[:count])


def pieces(server, opcode):
    """{(source, destination): [(first, last), ...]} of what was asked for, relative to the buffer."""
    return {path: sorted((address - ADDRESS, address - ADDRESS + length)
                         for op, address, length in requests if op == opcode)
            for path, requests in server.by_rail.items()}


@pytest.mark.parametrize("length", [2 * MIB - 1, 2 * MIB, 4 * MIB + 3])
def test_static_slices_are_the_published_ones(survivor, length):
    with published_server() as server:
        client = survivor(server.name, length, env=environment(NEAR[:2], slicing="static"))
        assert client.ask("once", 20) == "ok"
        half = length - length // 2  # what is left over goes to the first slice
        read, written = pieces(server, v1.READ), pieces(server, v1.WRITE)
        if length < 2 * MIB:
            assert [p for ranges in read.values() for p in ranges] == [(0, length)]
        else:
            assert read[NEAR[0], FAR[0]] == [(0, half)] and read[NEAR[1], FAR[1]] == [(half, length)]
        assert [p for ranges in written.values() for p in ranges] == [(0, length)], "a WRITE stays whole"
        assert set(server.by_rail) <= {(NEAR[0], FAR[0]), (NEAR[1], FAR[1])}


@pytest.mark.parametrize("striped", [False, True])
def test_a_write_to_v1_is_cut_only_if_asked_for(survivor, striped):
    with published_server() as server:
        client = survivor(server.name, 8 * MIB, env=environment(NEAR[:2], v1_write_striping=str(striped).lower()))

        def both_rails():
            """One more request; a rail that was still connecting may have come too late for the last one."""
            server.by_rail.clear()
            assert client.ask("once", 20) == "ok"
            written = sorted(p for ranges in pieces(server, v1.WRITE).values() for p in ranges)
            assert written == ([(i * MIB, (i + 1) * MIB) for i in range(8)] if striped else [(0, 8 * MIB)])
            assert sum(len(ranges) for ranges in pieces(server, v1.READ).values()) == 8
            return not striped or sum(bool(ranges) for ranges in pieces(server, v1.WRITE).values()) == 2
        harness.wait_until(both_rails, 10, "both rails take part in one WRITE")


@pytest.mark.parametrize("near,far", [(0, 2), (1, 2), (2, 1), (3, 2)])
def test_other_numbers_of_rails_than_a_v1_peer_has_are_refused(survivor, near, far):
    with published_server(far) as server:
        client = survivor(server.name, MIB, env=environment(NEAR[:near]) if near else {})
        said = client.ask("once", 20)
        assert said.startswith("failed ERR_STALE_KEY") and "rail_addresses" in said, said
        assert not server.requests and server.documents_shown == 2


# What the wire shows.

class Asked(relays.Forward):
    """Keeps (frame type, first, last) of every request that passes."""

    def __init__(self):
        self.ranges = []

    def header(self, data):
        if data[:4] == relays.FERRY_MAGIC and data[5] in (relays.FERRY_READ, relays.FERRY_WRITE):
            _, _, address, length = struct.unpack(">QQQQ", data[16:48])
            self.ranges.append((data[5], address, address + length))
        return data


@pytest.mark.parametrize("slicing", ["dynamic", "static"])
def test_the_wire_shows_which_piece_went_where(serve, survivor, relay, slicing):
    """Every byte is asked for once, on the rail that the record says; both rails take part."""
    server = serve(*rails(FAR[:2]), memory=("16MiB",))
    length = 8 * MIB + 5
    peer = relay(server, Asked)
    client = survivor(peer.name, length, env=environment(NEAR[:2], slicing=slicing))
    base = server.registration()[0]

    def request():
        """One WRITE and one READ; {frame type: {(source, destination): [(first, last), ...]}}."""
        for one in peer.filters:
            one.ranges = []
        assert client.ask("once", 20) == "ok"
        seen = {relays.FERRY_READ: {}, relays.FERRY_WRITE: {}}
        for one in peer.filters:
            for kind, first, last in one.ranges:
                seen[kind].setdefault(one.path, []).append((first - base, last - base))
        for paths in seen.values():
            assert set(paths) <= {(NEAR[0], FAR[0]), (NEAR[1], FAR[1])}, paths
            covered = 0
            for first, last in sorted(p for ranges in paths.values() for p in ranges):
                assert first == covered
                covered = last
            assert covered == length
        return seen

    if slicing == "static":
        half = length - length // 2
        seen = request()
        assert seen[relays.FERRY_READ] == {(NEAR[0], FAR[0]): [(0, half)], (NEAR[1], FAR[1]): [(half, length)]}
        assert len(seen[relays.FERRY_WRITE]) == 1
    else:
        # A rail that was still connecting may come too late for the first.
        harness.wait_until(lambda: all(len(paths) == 2 for paths in request().values()), 10,
                           "both rails take part in one READ and one WRITE")
