# SPDX-License-Identifier: Apache-2.0
"""Lengths around 2^31 and 2^32 (field report B09)."""
import pytest

import harness

GIB = 1 << 30
LENGTHS = [2 * GIB - 1, 2 * GIB, 2 * GIB + 1, 4 * GIB - 1, 4 * GIB, 4 * GIB + 4097]
SHORT_RUN = (2 * GIB + 1, 4 * GIB + 4097)
SETTINGS = ["--set", "transports.hp_tcp.max_transfer_bytes=8GiB", "--set", "transports.hp_tcp.max_outstanding_bytes=16GiB"]


@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.seconds(300)
@pytest.mark.xdist_group("gigabytes")
@pytest.mark.not_under(("thread",), "moves gigabytes, each byte of which costs a hundred times more")
def test_a_length_is_held_in_64_bits_everywhere(ferry, serve, op, length):
    if not harness.LONG and (length not in SHORT_RUN or (op == "write") != (length > 4 * GIB)):
        pytest.skip("takes seconds and gigabytes; scripts/test --long runs it")
    need = 3 * length + GIB
    if harness.memory_available() < need:
        pytest.skip("needs %.1f GiB of free memory" % (need / GIB))
    server = serve(*SETTINGS, memory=(str(length + 4096),), seconds=100)
    got = harness.bench(ferry, "--target", server.name, "--op", op, "--check", "--block", length, "--duration", 5,
                        *SETTINGS, seconds=180)
    assert got[0]["errors"] == 0
    assert got[0]["bytes"] == got[0]["ops"] * length and got[0]["ops"] >= 1
    assert got[0]["verified_bytes"] >= length


@pytest.mark.seconds(120)
@pytest.mark.xdist_group("gigabytes")
def test_the_default_limit_is_one_gibibyte(ferry, serve):
    if harness.memory_available() < 4 * GIB:
        pytest.skip("needs 4 GiB of free memory")
    server = serve(memory=(str(GIB + 4096),))
    common = ["--target", server.name, "--op", "read", "--duration", 0.1]
    assert harness.bench(ferry, *common, "--block", GIB, seconds=100)[0]["errors"] == 0
    status, out, err = harness.run([ferry, "bench", "--json", *common, "--block", GIB + 1], 100)
    assert status != 0, out
    assert str(GIB) in err, err
