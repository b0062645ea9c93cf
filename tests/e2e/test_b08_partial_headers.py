# SPDX-License-Identifier: Apache-2.0
"""A peer that stops in the middle of a header holds nothing (field report B08)."""
import time

import pytest

import harness
import v1

SETTLE = 10 if harness.LONG else 3
HEADERS = {
    "v1": v1.REQUEST.pack(v1.MAGIC, 1, v1.READ, 0, 1, 1, 4096, 4096, 0),
    # The first bytes of a greeting in ferry's own frames: magic, version, type, 128 bytes of header.
    "ferry": b"FRRY" + bytes([1, 1]) + (128).to_bytes(2, "big") + bytes(56),
}


@pytest.mark.parametrize("wire", sorted(HEADERS))
@pytest.mark.seconds(90)
def test_every_partial_header(ferry, serve, start, wire):
    server = serve("--set", "transports.hp_tcp.progress_timeout_ms=2000", memory=("16MiB",))
    good = start([ferry, "bench", "--json", "--target", server.name, "--op", "read", "--block", 4096, "--check",
                  "--duration", 8])
    where, header = server.data_endpoint(), HEADERS[wire]
    harness.wait_until(lambda: harness.cpu_seconds(server.pid) > 0.1, 10, "the good initiator works")
    base, _ = harness.settled_uses(server.pid)

    for leave in (v1.Client.close, v1.Client.reset):
        for count in range(len(header)):
            client = v1.Client(*where)
            client.sock.sendall(header[:count])
            leave(client)
        harness.wait_until(lambda: harness.fd_count(server.pid) <= base, 1, "descriptors back after " + leave.__name__)

    silent = [v1.Client(*where) for _ in header]
    began = harness.now()
    for count, client in enumerate(silent):
        client.sock.sendall(header[:count])
    for client in silent:
        assert client.ends(5)
        client.close()
    assert harness.now() - began < 2.5 * harness.PATIENCE
    harness.wait_until(lambda: harness.fd_count(server.pid) <= base, 1, "descriptors back after silence")

    status, out, err = good.finish(30)
    assert status == 0 and harness.records(out)[0]["errors"] == 0, err
    time.sleep(0.5)
    before = harness.cpu_seconds(server.pid)
    time.sleep(SETTLE)
    assert harness.cpu_seconds(server.pid) - before <= 0.03 * SETTLE
