# SPDX-License-Identifier: Apache-2.0
"""Every wrong flag value of the benchmark is refused with its name and range (field report B35)."""
import os
import re
import subprocess

import pytest

import harness

WRONG = [
    ("--block", "0"), ("--block", "-1"), ("--block", "18446744073709551616"), ("--block", "64X"), ("--block", "8192..4096"),
    ("--block", "4096.."), ("--batch", "0"), ("--batch", "-3"), ("--batch", "10000000"), ("--threads", "0"),
    ("--threads", "100000000000"), ("--duration", "0"), ("--duration", "-1"), ("--duration", "soon"), ("--op", "steal"),
    ("--transport", "pigeon"), ("--no-such-flag", "1"), ("--set", "nonsense"),
]


@pytest.mark.parametrize("flag,value", WRONG, ids=["%s=%s" % row for row in WRONG])
def test_a_wrong_value_is_a_usage_error(ferry, flag, value):
    began = harness.now()
    status, out, err = harness.run([ferry, "bench", "--json", flag, value], 5)
    assert status == harness.USAGE, (status, err)
    assert harness.now() - began < 1 * harness.PATIENCE
    assert out == ""
    assert flag.lstrip("-") in err and (value in err or flag == "--no-such-flag"), err


def test_a_target_that_is_too_small_names_both_sizes(ferry, serve):
    server = serve(memory=("1MiB",))
    status, out, err = harness.run([ferry, "bench", "--json", "--target", server.name, "--block", 4 << 20, "--duration", 1], 10)
    assert status in (harness.USAGE, harness.ENVIRONMENT), (status, out, err)
    assert "1048576" in err and "4194304" in err, err


def test_a_product_over_64_bits_is_refused(ferry):
    status, out, err = harness.run([ferry, "bench", "--json", "--block", 1 << 40, "--batch", 65536, "--threads", 256,
                                    "--duration", 1], 5)
    assert status in (harness.USAGE, harness.ENVIRONMENT), (status, err)
    assert out == ""


def test_nobody_at_the_target(ferry):
    status, out, err = harness.run([ferry, "bench", "--json", "--target", "127.0.0.1:1", "--duration", 1], 10)
    assert status in (harness.DATA, harness.ENVIRONMENT) and "127.0.0.1:1" in err, (status, err)


def test_a_target_killed_in_the_run_is_an_error(ferry, serve, start):
    server = serve(memory=("16MiB",))
    client = start([ferry, "bench", "--json", "--target", server.name, "--op", "read", "--block", 1 << 20,
                    "--duration", 20])
    harness.wait_until(lambda: harness.cpu_seconds(client.pid) > 0.2, 10, "the run has begun")
    server.kill()
    status, out, err = client.finish(3.5 + 2)
    assert status not in (0, harness.USAGE), err
    got = harness.records(out)
    assert not got or sum(r["errors"] for r in got) > 0, got


def test_output_to_a_closed_pipe(ferry):
    read_end, write_end = os.pipe()
    child = subprocess.Popen([ferry, "bench", "--json", "--block", "4096..65536", "--duration", "0.1"], stdout=write_end,
                             stderr=subprocess.PIPE)
    os.close(write_end)
    os.close(read_end)
    _, err = child.communicate(timeout=30)
    assert child.returncode not in (-11, -6, -8), err


# The reference benchmark's flags.

def test_published_command_lines_run(ferry, start, tmp_path):
    target = start([ferry, "bench", "--seg_name=target0", "--xport_type=hp_tcp", "--total_buffer_size=67108864"])
    found = []

    def named():
        match = re.search(r"(\d+\.\d+\.\d+\.\d+:\d+)", target.so_far() + target.stderr())
        found[:] = [match.group(1)] if match else []
        return bool(found)
    harness.wait_until(named, 20, "the target says its name")
    status, out, err = harness.run([ferry, "bench", "--target_seg_name=" + found[0], "--op_type=read",
                                    "--start_block_size=4096", "--max_block_size=16384", "--duration=1",
                                    "--xport_type=hp_tcp"], 60)
    assert status == 0, err
    assert target.stop() == 0


@pytest.mark.parametrize("flag", ["--seg_type=VRAM", "--notifi=true", "--backend=classic", "--qos_classes=a:1:1:1"])
def test_flags_without_meaning_here_are_refused_by_name(ferry, flag):
    status, _, err = harness.run([ferry, "bench", flag, "--target_seg_name=127.0.0.1:1"], 5)
    assert status == harness.USAGE and flag.split("=")[0].lstrip("-") in err, (status, err)
