# SPDX-License-Identifier: Apache-2.0
"""The harness itself: the relay really damages, the v1 speaker agrees with the published vectors."""
import socket
import threading

import pytest

import relay as relays
import v1


def test_v1_frames_are_the_published_bytes():
    vectors = [
        (v1.REQUEST.pack(v1.MAGIC, 1, v1.READ, 0, 1, 0x1122334455667788, 0x7f0000001000, 4096, 0),
         "4d43545000010100 0000000000000001 1122334455667788 00007f0000001000 0000000000001000 0000000000000000"),
        (v1.REQUEST.pack(v1.MAGIC, 1, v1.WRITE, 0, 0x0102030405060708, (1 << 64) - 1, 0x7f0000002000, 65536, 0),
         "4d43545000010200 0102030405060708 ffffffffffffffff 00007f0000002000 0000000000010000 0000000000000000"),
        (v1.RESPONSE.pack(v1.MAGIC, 1, v1.OK, 1, 4096, 0),
         "4d43545000010000 0000000000000001 0000000000001000 0000000000000000"),
        (v1.RESPONSE.pack(v1.MAGIC, 1, v1.STALE, 1, 0, 0),
         "4d43545000010006 0000000000000001 0000000000000000 0000000000000000"),
        (v1.RESPONSE.pack(v1.MAGIC, 1, v1.BAD_VERSION, 0, 0, 0),
         "4d43545000010001 0000000000000000 0000000000000000 0000000000000000"),
    ]
    for packed, text in vectors:
        assert packed == bytes.fromhex(text)


@pytest.fixture
def server():
    with v1.Server([v1.Buffer(0x7f0000001000, 1 << 20, 77)]) as opened:
        yield opened


def exchange(host, port, data):
    """WRITE, then READ, through one connection; what came back."""
    with v1.Client(host, port) as client:
        client.write(77, 0x7f0000001000, data)
        return client.read(77, 0x7f0000001000, len(data))


def test_v1_server_and_client_agree(server):
    data = v1.pattern(1, 300001)
    assert exchange(server.host, server.port, data) == data
    assert server.buffers[0].data[:len(data)] == data


@pytest.mark.parametrize("make_filter,intact", [
    (relays.Forward, True), (relays.Record, True), (relays.FlipPayload, False), (relays.SwapPieces, False)])
def test_relay_damages_payload_and_only_payload(server, make_filter, intact):
    data = v1.pattern(2, 100000)
    between = relays.Relay((server.host, server.port), make_filter)
    try:
        with v1.Client(between.host, between.port) as client:
            client.write(77, 0x7f0000001000, data)
            landed = bytes(server.buffers[0].data[:len(data)])
            with v1.Client(server.host, server.port) as direct:
                direct.write(77, 0x7f0000001000, data)
            got = client.read(77, 0x7f0000001000, len(data))
        assert len(got) == len(data)
        assert ((got == data), (landed == data)) == (intact, intact)
        if make_filter is relays.SwapPieces:
            assert sorted(got) == sorted(landed) == sorted(data)
    finally:
        between.close()


def test_relay_cuts_where_it_is_told(server):
    between = relays.Relay((server.host, server.port), lambda: relays.CutAfter(50000))
    try:
        with pytest.raises((EOFError, ConnectionError, socket.timeout)):
            exchange(between.host, between.port, v1.pattern(3, 1 << 20))
    finally:
        between.close()


def test_nothing_is_left_running(server):
    before = threading.active_count()
    with v1.Server([v1.Buffer(4096, 4096, 1)]) as other:
        with v1.Client(other.host, other.port) as client:
            assert client.read(1, 4096, 16) == bytes(16)
    until = 200
    while threading.active_count() > before and until:
        until -= 1
        threading.Event().wait(0.02)
    assert threading.active_count() <= before
