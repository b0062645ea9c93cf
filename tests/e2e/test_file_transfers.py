# SPDX-License-Identifier: Apache-2.0
"""Files as segments, by the command: benchmark, copy, and what is said when a file is not there."""
import os

import harness


def test_a_file_is_a_target_of_the_benchmark(ferry, tmp_path):
    path = tmp_path / "target"
    path.write_bytes(bytes(8 << 20))
    for op in ("write_seed", "read_verify"):
        status, _, err = harness.run([ferry, "bench", "--target", "file://%s" % path, "--op", op, "--block", "1MiB", "--duration", "0.2"])
        assert status == 0, err
    assert path.stat().st_size == 8 << 20


def test_a_copy_into_a_file_and_back(ferry, tmp_path):
    source, target, back = tmp_path / "source", tmp_path / "a target", tmp_path / "back"
    data = os.urandom(3 * (1 << 20) + 4321)
    source.write_bytes(data)
    target.write_bytes(b"x" * (4 << 20))
    status, _, err = harness.run([ferry, "cp", "--verify", str(source), "file://%s" % target])
    assert status == 0, err
    assert target.read_bytes() == data + b"x" * ((4 << 20) - len(data))
    status, _, err = harness.run([ferry, "cp", "--length", str(len(data)), "file://%s" % target, str(back)])
    assert status == 0, err
    assert back.read_bytes() == data


def test_a_file_that_is_not_there_or_too_short(ferry, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"y" * 10000)
    status, _, err = harness.run([ferry, "cp", str(source), "file://%s/none" % tmp_path])
    assert status != 0
    assert "No such file" in err
    short = tmp_path / "short"
    short.write_bytes(b"z" * 100)
    status, _, err = harness.run([ferry, "cp", str(source), "file://%s" % short])
    assert status != 0
    assert short.read_bytes() == b"z" * 100
