# SPDX-License-Identifier: Apache-2.0
"""The examples run as their comments say, and build against an installed library."""
import json
import os
import re
import shutil
import subprocess

import pytest

import harness
import v1

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.abspath(os.environ.get("FERRY_TEST_BUILD", os.path.join(TOP, "build-test")))
FIRST_MIB = bytes(i % 251 for i in range(1 << 20))


def example(name):
    return os.path.join(BUILD, "examples", name)


@pytest.mark.not_under(("thread",), "reports bytes that are filled before, and sent after, a message of the peer: for hours")
def test_read_copies_what_serve_offers(start):
    server = start([example("serve")], stdin=subprocess.PIPE)
    name = server.line(20)
    status, out, err = harness.run([example("read"), name], 20)
    assert status == 0, err
    assert out == "read %d bytes, sum %d\n" % (len(FIRST_MIB), sum(FIRST_MIB))
    server.child.stdin.close()
    server.child.stdin = None
    assert server.finish(10)[0] == 0, server.stderr()


def test_memory_offered_for_reading_cannot_be_written(start):
    """The published row for a missing permission, against the read-only memory of the example."""
    server = start([example("serve")], stdin=subprocess.PIPE)
    name = server.line(20)
    document = json.loads(harness.http_get(name, "/v1/segment"))
    buffer = document["detail"]["buffers"][0]
    attribute = harness.hp_attribute(buffer)
    assert attribute["permission"] == "global_read_only"
    endpoint = harness.hp_attribute(document)["endpoints"][0]
    with v1.Client(endpoint["host"], endpoint["port"]) as client:
        request = client.send_request(v1.WRITE, attribute["registration_id"], buffer["addr"], 4096, body=bytes(4096))
        assert client.response() == (v1.PERMISSION, request, 0)
        assert client.ends()
    with v1.Client(endpoint["host"], endpoint["port"]) as client:
        assert client.read(attribute["registration_id"], buffer["addr"], 4096) == FIRST_MIB[:4096]


def test_read_of_nobody_says_so():
    status, _, err = harness.run([example("read"), "127.0.0.1:1"], 20)
    assert status == 1
    assert "127.0.0.1:1" in err and "refused" in err.lower(), err


def test_config_shows_origins_and_refuses():
    status, out, err = harness.run([example("config")], 20, env={"FERRY_TRANSPORTS_HP_TCP_CONNECTIONS_PER_PEER": "3"})
    assert status == 0, err
    assert "transports.hp_tcp.worker_count = 2 (program)" in out
    assert "transports.hp_tcp.connections_per_peer = 3 (environment)" in out
    assert "worker_count 0: " in out and "accepted" not in out
    assert "running as " in out


@pytest.mark.seconds(120)
@pytest.mark.not_under(("address", "thread"), "a plain program cannot load a library with a sanitizer in it")
def test_an_installed_library_is_found_by_pkg_config(tmp_path, start):
    """Install into a prefix, compile the first example with what pkg-config says, and run it."""
    if not shutil.which("pkg-config") or not shutil.which("cc"):
        pytest.skip("pkg-config or cc is not installed")
    stage = tmp_path / "stage"
    done = subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", str(stage)],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [os.path.join(folder, "ferry.pc") for folder, _, names in os.walk(stage) if "ferry.pc" in names]
    assert len(found) == 1, found
    headers = sorted(n for _, _, names in os.walk(stage) for n in names if n.endswith(".h"))
    assert headers == sorted(n for n in os.listdir(os.path.join(TOP, "include", "ferry")) if n.endswith(".h"))
    env = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(found[0]), PKG_CONFIG_SYSROOT_DIR=str(stage))
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "ferry"], env=env, capture_output=True, text=True,
                           timeout=30, check=True).stdout.split()
    program = tmp_path / "read"
    subprocess.run(["cc", "-std=c11", os.path.join(TOP, "examples", "read.c"), "-o", str(program), *flags], check=True,
                   timeout=60)
    library = [folder for folder, _, names in os.walk(stage) if "libferry.so.0" in names]
    server = start([example("serve")], stdin=subprocess.PIPE)
    name = server.line(20)
    status, out, err = harness.run([str(program), name], 20, env={"LD_LIBRARY_PATH": library[0]})
    assert status == 0 and out.startswith("read 1048576 bytes"), err


@pytest.mark.not_under(("address", "thread"), "a plain program cannot load a library with a sanitizer in it")
def test_the_program_in_the_readme_works(tmp_path, start):
    with open(os.path.join(TOP, "README.md"), encoding="utf-8") as f:
        text = re.search(r"^```c\n(.*?)^```", f.read(), re.M | re.S).group(1)
    source, program = tmp_path / "first.c", tmp_path / "first"
    source.write_text(text)
    library = os.path.join(BUILD, "src")
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-I" + os.path.join(TOP, "include"), str(source),
                    "-o", str(program), "-L" + library, "-lferry", "-Wl,-rpath," + library], check=True, timeout=60)
    server = start([example("serve")], stdin=subprocess.PIPE)
    status, out, err = harness.run([program, server.line(20)], 20)
    assert (status, out) == (0, "every byte is here\n"), err
