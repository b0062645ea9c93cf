# SPDX-License-Identifier: Apache-2.0
"""Engines move bytes of file segments that a store describes, each host through its own paths."""
import json
import os

import pytest

import etcd as etcds
import harness

pytestmark = pytest.mark.skipif(not os.access(etcds.PROGRAM, os.X_OK), reason="no etcd (Debian: etcd-server)")


@pytest.fixture
def etcd():
    server = etcds.Etcd()
    yield server
    server.close()


def segment(ferry, etcd, host, *words):
    status, out, err = harness.run([ferry, "segment", *words, "--host", host, "--json", *etcd.settings])
    assert status == 0, (words, err)
    return json.loads(out)


def bench(ferry, etcd, host, op, *more, **options):
    return harness.bench(ferry, "--target", "nvmeof/disk", "--op", op, "--duration", 0.2, "--set", "host_name=" + host,
                         *etcd.settings, *more, **options)


def make(ferry, path, size):
    status, _, err = harness.run([ferry, "segment", "create", "--size", size, str(path)])
    assert status == 0, err
    return str(path)


def test_what_one_host_writes_another_reads_under_its_own_paths(ferry, etcd, tmp_path):
    """The two hosts' paths are links to the same files, as two mounts of one volume would be."""
    files = [make(ferry, tmp_path / n, "3MiB") for n in "ab"]
    for n in "ab":
        os.symlink(n, tmp_path / ("link-" + n))
    segment(ferry, etcd, "h1", "register", "disk", *files)
    for n in range(2):
        segment(ferry, etcd, "h2", "map", "disk", "#%d" % n, str(tmp_path / ("link-" + "ab"[n])))
    wrote = bench(ferry, etcd, "h1", "write_seed", "--block", "4194304")
    assert wrote[0]["errors"] == 0 and wrote[0]["bytes"] > 0
    read = bench(ferry, etcd, "h2", "read_verify", "--block", "4194304")
    assert read[0]["errors"] == 0 and read[0]["verified_bytes"] > 0
    assert any(open(files[0], "rb").read()) and any(open(files[1], "rb").read())


def test_a_host_without_a_path_is_told_who_has_one(ferry, etcd, tmp_path):
    segment(ferry, etcd, "h1", "register", "disk", make(ferry, tmp_path / "a", "1MiB"))
    status, _, err = harness.run([ferry, "bench", "--json", "--target", "nvmeof/disk", "--op", "read", "--duration", "0.1",
                                  "--block", "4096", "--set", "host_name=h9", *etcd.settings])
    assert status in (harness.DATA, harness.ENVIRONMENT) and "h9" in err and "h1" in err, err
    status, _, err = harness.run([ferry, "bench", "--target", "nvmeof/disk", "--set", "host_name=a,,b", *etcd.settings])
    assert status == harness.USAGE and "host_name" in err
