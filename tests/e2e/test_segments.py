# SPDX-License-Identifier: Apache-2.0
"""File segments in a metadata store: registered, mapped by several hosts, looked at, changed, forgotten.

One machine plays several hosts by their names.
"""
import base64
import json
import os
import shutil
import subprocess
import urllib.request

import pytest

import etcd as etcds
import harness
import http_store

pytestmark = pytest.mark.skipif(not os.access(etcds.PROGRAM, os.X_OK), reason="no etcd (Debian: etcd-server)")

# The reference's scripts, as their published form does it: get, change, put, without comparing.
KEY = "mooncake/nvmeof/"


@pytest.fixture(scope="module")
def etcd():
    server = etcds.Etcd()
    yield server
    server.close()


def gateway(etcd, path, body):
    request = urllib.request.Request("http://127.0.0.1:%d/v3/kv/%s" % (etcd.port, path), json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=20 * harness.PATIENCE) as reply:
        return json.load(reply)


def b64(text):
    return base64.b64encode(text.encode()).decode()


def raw_get(etcd, name):
    found = gateway(etcd, "range", {"key": b64(KEY + name)}).get("kvs")
    return base64.b64decode(found[0]["value"]).decode() if found else None


def raw_put(etcd, name, text):
    gateway(etcd, "put", {"key": b64(KEY + name), "value": b64(text)})


class Host:
    """`ferry segment` as one host of the fleet."""

    def __init__(self, ferry, settings, name):
        self.ferry, self.settings, self.name = ferry, settings, name

    def try_(self, verb, *words, json_too=True):
        command = [self.ferry, "segment", verb, *words, "--host", self.name, *self.settings]
        status, out, err = harness.run(command + (["--json"] if json_too else []), 60)
        return status, (json.loads(out) if json_too and status in (0, harness.DATA) and out else out), err

    def __call__(self, verb, *words):
        status, out, err = self.try_(verb, *words)
        assert status == 0, (verb, words, status, err)
        return out

    def refuses(self, status, verb, *words, says=()):
        got, out, err = self.try_(verb, *words)
        assert got == status, (verb, words, got, out, err)
        for text in says:
            assert text in err, (text, err)


@pytest.fixture
def host(ferry, etcd):
    return lambda name: Host(ferry, etcd.settings, name)


def write_file(path, size, seed):
    """Position-dependent content."""
    path.write_bytes(bytes((seed * 89 + i * 7 + i // 251) % 256 for i in range(size)))
    return str(path)


@pytest.fixture
def name(request):
    return request.node.name.replace("[", "-").replace("]", "")


def test_two_hosts_have_one_segment_each_under_its_own_paths(host, etcd, tmp_path, name):
    one, two = host("h1"), host("h2")
    files = [write_file(tmp_path / f, size, n) for n, (f, size) in enumerate((("a b", 10001), ("ü\"x", 512)))]
    os.mkdir(tmp_path / "other")
    elsewhere = [str(tmp_path / "other" / n) for n in ("A", "B")]
    for source, target in zip(files, elsewhere):
        shutil.copy(source, target)
    made = one("register", name, *files)
    assert made["length"] == 10513 and made["registered_by"] == "h1"
    assert [f["start"] for f in made["files"]] == [0, 10001]

    # What is in the store is what the reference's scripts write and read.
    document = json.loads(raw_get(etcd, name))
    assert document == {"server_name": "h1", "protocol": "nvmeof", "buffers": [
        {"length": 10001, "file_path": files[0], "local_path_map": {"h1": files[0]}},
        {"length": 512, "file_path": files[1], "local_path_map": {"h1": files[1]}}]}
    assert list(document) == ["server_name", "protocol", "buffers"]

    two("map", name, files[0], elsewhere[0])
    got = two("map", "nvmeof/" + name, "#1", elsewhere[1])
    assert got["files"][1]["paths"] == {"h1": files[1], "h2": elsewhere[1]}
    assert [f["path"] for f in two("show", name)["files"]] == elsewhere
    assert [f["path"] for f in one("show", "nvmeof/" + name)["files"]] == files
    assert two("verify", name)["problems"] == 0 and one("verify", name)["problems"] == 0
    assert "nvmeof/" + name in one("list")

    two("unmap", name, files[0])
    assert two("show", name)["files"][0]["path"] is None
    two("unmap", name)
    two.refuses(harness.ENVIRONMENT, "unmap", name, says=("h2",))
    assert one("verify", name)["problems"] == 0
    one("rm", name)
    assert raw_get(etcd, name) is None and all(os.path.exists(f) for f in files)
    one.refuses(harness.ENVIRONMENT, "rm", name)


def test_a_document_of_the_scripts_is_read_and_kept(host, etcd, tmp_path, name):
    path = write_file(tmp_path / "f", 4096, 1)
    raw_put(etcd, name, json.dumps({"name": "old", "protocol": "nvmeof", "of_tomorrow": [1, 2.5, None], "buffers": [
        {"length": 4096, "file_path": "rel/f", "local_path_map": {"h1": "rel/f"}, "extra": {"k": 18446744073709551615}}]}))
    shown = host("h1")("show", name)
    assert "not absolute" in shown["files"][0]["problem"]
    host("h2")("map", name, "rel/f", path)
    document = json.loads(raw_get(etcd, name))
    assert document["name"] == "old" and document["of_tomorrow"] == [1, 2.5, None] and "server_name" not in document
    assert document["buffers"][0]["extra"] == {"k": 18446744073709551615}
    assert document["buffers"][0]["local_path_map"] == {"h1": "rel/f", "h2": path}


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"protocol":"tcp","buffers":[]}',
                                  '{"protocol":"nvmeof","buffers":[]}',
                                  '{"protocol":"nvmeof","buffers":[{"length":-1,"file_path":"/x","local_path_map":{}}]}'])
def test_a_broken_document_is_named_and_can_be_removed(host, etcd, text, name):
    name = "broken-%d" % len(text)
    raw_put(etcd, name, text)
    for verb in (("show", "nvmeof/" + name), ("verify", name), ("map", name, "#0", "/etc/passwd")):
        host("h1").refuses(harness.ENVIRONMENT, *verb, says=("document",))
    host("h1")("rm", name)
    assert raw_get(etcd, name) is None


def test_what_cannot_be_registered(host, tmp_path, name):
    one = host("h1")
    good = write_file(tmp_path / "good", 100, 1)
    empty = write_file(tmp_path / "empty", 0, 1)
    os.link(good, tmp_path / "again")
    os.mkdir(tmp_path / "bare")
    for words, says in ((("missing",), "No such file"), ((good, empty), "is empty"), ((good, good), "one file"),
                        ((good, str(tmp_path / "again")), "one file"), (("/dev/null",), "regular file"),
                        ((str(tmp_path / "bare"),), "no file in")):
        status, _, err = one.try_("register", name, *words)
        assert status in (harness.USAGE, harness.ENVIRONMENT) and says in err, (words, status, err)
    for bad in ("a/b", "..", ".", "a\nb", "x" * 241):
        one.refuses(harness.USAGE, "register", bad, good)
    one("register", name, good)
    one.refuses(harness.ENVIRONMENT, "register", name, good, says=("registered by h1", "revision"))


def test_a_folder_is_its_files_in_the_order_of_bytes(host, tmp_path, name):
    for n, file in enumerate(("b", "a", "B", ".hidden", "é")):
        write_file(tmp_path / file, 10 + n, n)
    os.mkdir(tmp_path / "below")
    os.symlink("a", tmp_path / "link")
    got = host("h1")("register", name, str(tmp_path))
    assert [os.path.basename(f["file_path"]) for f in got["files"]] == ["B", "a", "b", "é"]
    got = host("h1")("register", name + "-all", "--hidden", str(tmp_path))
    assert [os.path.basename(f["file_path"]) for f in got["files"]] == [".hidden", "B", "a", "b", "é"]


def test_relative_paths_become_absolute_and_links_stay(ferry, etcd, tmp_path, name):
    write_file(tmp_path / "f", 100, 1)
    os.symlink("f", tmp_path / "link")
    out = subprocess.run([ferry, "segment", "register", name, "./link", "--json", *etcd.settings], cwd=tmp_path,
                         capture_output=True, text=True, check=True, timeout=60 * harness.PATIENCE).stdout
    assert json.loads(out)["files"][0]["file_path"] == str(tmp_path / "link")
    out = subprocess.run([ferry, "segment", "verify", name, *etcd.settings], capture_output=True, text=True,
                         check=True, timeout=60 * harness.PATIENCE).stdout
    assert "leads to: %s" % (tmp_path / "f") in out


def test_a_map_is_refused_for_what_is_not_the_file(host, tmp_path, name):
    one, two = host("h1"), host("h2")
    files = [write_file(tmp_path / n, 5000, 3) for n in ("a", "b")]
    one("register", name, *files)
    short = write_file(tmp_path / "short", 4999, 3)
    two.refuses(harness.ENVIRONMENT, "map", name, files[0], short, says=("4999", "5000"))
    two.refuses(harness.ENVIRONMENT, "map", name, files[0], str(tmp_path / "none"), says=("No such file",))
    two.refuses(harness.USAGE, "map", name, files[0], str(tmp_path), says=("directory",))
    two.refuses(harness.ENVIRONMENT, "map", name, str(tmp_path / "zzz"), files[0], says=("registered as",))
    two.refuses(harness.ENVIRONMENT, "map", name, "#2", files[0])
    two.refuses(harness.ENVIRONMENT, "map", name + "-unknown", "#0", files[0], says=("knows no segment",))
    assert all(f["paths"] == {"h1": f["file_path"]} for f in one("show", name)["files"])


def test_verify_finds_what_is_wrong(host, tmp_path, name):
    one = host("h1")
    files = [write_file(tmp_path / n, 5000, n == "a") for n in "abcd"]
    one("register", name, *files)
    os.truncate(files[0], 4000)
    os.remove(files[1])
    os.truncate(files[2], 6000)
    status, got, _ = one.try_("verify", name)
    assert status == harness.DATA and got["problems"] == 2
    assert "4000" in got["files"][0]["problem"] and "5000" in got["files"][0]["problem"]
    assert "No such file" in got["files"][1]["problem"]
    assert "problem" not in got["files"][2] and "longer" in got["files"][2]["note"]
    assert "problem" not in got["files"][3]
    status, got, _ = one.try_("verify", "--quick", name)
    assert status == harness.DATA and got["problems"] == 2
    # Showing is no test.
    assert one("show", name)["problems"] == 2
    status, got, _ = host("h9").try_("verify", name)
    assert status == harness.DATA and got["problems"] == 4
    assert "h9" in got["files"][0]["problem"] and "h1" in got["files"][0]["problem"]


def test_resize_only_grows_and_only_when_told(host, tmp_path, name):
    one = host("h1")
    files = [write_file(tmp_path / n, 1000, 1) for n in "ab"]
    one("register", name, *files)
    os.truncate(files[0], 1500)
    one.refuses(harness.USAGE, "resize", name, files[0], says=("1500", "1000", "extend"))
    got = one("resize", "--extend", name, files[0])
    assert got["length"] == 2500 and got["files"][1]["start"] == 1500
    got = one("resize", "--extend", "--size", "4KiB", name, "#1")
    assert got["length"] == 5596 and os.path.getsize(files[1]) == 4096
    with open(files[1], "rb") as file:
        data = file.read()
    assert data[:1000] == bytes((89 + i * 7 + i // 251) % 256 for i in range(1000)) and not any(data[1000:])
    os.truncate(files[0], 100)
    one.refuses(harness.ENVIRONMENT, "resize", "--extend", name, files[0], says=("100", "does not shrink"))
    host("h2").refuses(harness.ENVIRONMENT, "resize", "--extend", name, files[0], says=("h2",))
    one.refuses(harness.USAGE, "resize", "--size", "4KiB", name, "#1")
    assert one("show", name)["length"] == 5596


def test_create_makes_all_or_nothing(ferry, tmp_path):
    def create(*words):
        return harness.run([ferry, "segment", "create", *words], 60)
    paths = [str(tmp_path / n) for n in "ab"]
    assert create("--size", "1MiB", *paths)[0] == 0
    for path in paths:
        st = os.stat(path)
        assert st.st_size == 1 << 20 and st.st_blocks * 512 >= 1 << 20
        with open(path, "rb") as file:
            assert not any(file.read())
    sparse = str(tmp_path / "s")
    assert create("--sparse", "--size", "64GiB", sparse)[0] == 0
    assert os.stat(sparse).st_size == 64 << 30 and os.stat(sparse).st_blocks == 0
    kept = write_file(tmp_path / "kept", 10, 5)
    before = open(kept, "rb").read()
    status, _, err = create("--size", "1MiB", str(tmp_path / "new"), kept)
    assert status == harness.ENVIRONMENT and "File exists" in err
    assert open(kept, "rb").read() == before and not os.path.exists(tmp_path / "new")
    assert create(str(tmp_path / "nosize"))[0] == harness.USAGE


def test_create_on_a_full_disk_leaves_nothing(ferry, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    small = tmp_path / "small"
    small.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "ferry-test", small], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("cannot mount: " + done.stderr.strip())
    try:
        status, _, err = harness.run([ferry, "segment", "create", "--size", "600KiB", str(small / "a"), str(small / "b")])
        assert status == harness.ENVIRONMENT and "ENOSPC" in err and str(600 << 10) in err and "free" in err
        assert os.listdir(small) == []
    finally:
        subprocess.run(["umount", small], check=True)


def test_rm_deletes_files_only_when_told(host, tmp_path, name):
    files = [write_file(tmp_path / n, 100, 1) for n in "ab"]
    host("h1")("register", name, *files)
    host("h1")("rm", "--purge", name)
    assert os.listdir(tmp_path) == []


def rounds_of_racing_hosts(ferry, settings, tmp_path, name, rounds, hosts=8):
    """How many hosts were there after each round of all of them mapping at once."""
    path = write_file(tmp_path / "f", 4096, 1)
    counts = []
    for number in range(rounds):
        segment = "%s-%d" % (name, number)
        Host(ferry, settings, "owner")("register", segment, path)
        racing = [harness.Process([ferry, "segment", "map", "--host", "h%d" % n, segment, "#0", path, *settings])
                  for n in range(hosts)]
        try:
            for process in racing:
                status, _, err = process.finish(60)
                assert status == 0, err
        finally:
            for process in racing:
                process.close()
        paths = Host(ferry, settings, "owner")("show", "nvmeof/" + segment)["files"][0]["paths"]
        counts.append(len(paths) - 1)
    return counts


@pytest.mark.seconds(300)
def test_hosts_that_map_at_once_all_survive(ferry, etcd, tmp_path, name):
    rounds = 20 if harness.LONG or not harness.SANITIZER else 5
    assert rounds_of_racing_hosts(ferry, etcd.settings, tmp_path, name, rounds) == [8] * rounds


def test_the_http_store_says_that_it_does_not_compare(ferry, tmp_path, name):
    """It works, one host after the other, and nobody is told that racing is safe."""
    with http_store_process() as settings:
        one, two = Host(ferry, settings, "h1"), Host(ferry, settings, "h2")
        path = write_file(tmp_path / "f", 4096, 1)
        status, _, err = one.try_("register", name, path)
        assert status == 0 and "cannot compare" in err
        one.refuses(harness.ENVIRONMENT, "register", name, path, says=("known already", "h1"))
        status, got, err = two.try_("map", name, path, path)
        assert status == 0 and "cannot compare" in err
        assert got["files"][0]["paths"] == {"h1": path, "h2": path}
        assert two("verify", name)["problems"] == 0
        two("unmap", name)
        one.refuses(harness.USAGE, "list", says=("cannot list",))
        one("rm", name)
        one.refuses(harness.ENVIRONMENT, "show", "nvmeof/" + name)


class http_store_process:
    def __enter__(self):
        self.child = subprocess.Popen(["python3", http_store.__file__, "--until-eof"], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        port = int(self.child.stdout.readline())
        return ["--set", "metadata_type=http", "--set", "metadata_servers=http://127.0.0.1:%d/metadata" % port]

    def __exit__(self, *_):
        self.child.stdin.close()
        self.child.wait()


def test_without_a_store_it_is_said_what_is_missing(ferry, tmp_path):
    status, _, err = harness.run([ferry, "segment", "list"])
    assert status == harness.USAGE and "metadata_type" in err


def test_the_example_of_the_catalog_runs(etcd, tmp_path, name):
    program = os.path.join(os.path.dirname(harness.program("x")), "..", "..", "..", "examples", "catalog")
    files = [write_file(tmp_path / n, 100, 1) for n in "ab"]
    environment = {"FERRY_METADATA_TYPE": "etcd", "FERRY_METADATA_SERVERS": "127.0.0.1:%d" % etcd.port,
                   "FERRY_HOST_NAME": "h1"}
    for says in ("", "known already: registered by h1"):
        status, out, err = harness.run([program, name, *files], env=environment)
        assert status == 0 and says in err, err
        assert [f["size"] for f in json.loads(out)["files"]] == [100, 100]


def doctor(ferry, etcd, host_name, segment):
    status, out, _ = harness.run([ferry, "doctor", "--json", segment, "--set", "host_name=" + host_name, *etcd.settings])
    return status, {check["name"]: check for check in json.loads(out)["checks"]}


def test_the_doctor_goes_through_the_operators_list(ferry, host, etcd, tmp_path, name):
    files = [write_file(tmp_path / n, 8192, 1) for n in "ab"]
    status, checks = doctor(ferry, etcd, "h1", name)
    assert status == harness.ENVIRONMENT and "knows no segment" in checks["store"]["found"]
    host("h1")("register", name, *files)
    status, checks = doctor(ferry, etcd, "h1", name)
    assert status == 0 and checks["path map"]["verdict"] == "ok" and "2 of 2" in checks["path map"]["found"]
    mount = subprocess.run(["findmnt", "-no", "TARGET,FSTYPE", "-T", files[0]], capture_output=True, text=True)
    if mount.returncode == 0:
        target, kind = mount.stdout.split()[:2]
        assert "%s at %s from" % (kind, target) in checks["file #0"]["found"], checks["file #0"]
    status, checks = doctor(ferry, etcd, "h2", name)
    assert status == harness.ENVIRONMENT and "0 of 2" in checks["path map"]["found"]
    assert "segment map" in checks["file #1"]["advice"]
    os.remove(files[1])
    os.truncate(files[0], 100)
    status, checks = doctor(ferry, etcd, "h1", name)
    assert status == harness.ENVIRONMENT
    assert "100 bytes, expected 8192" in checks["file #0"]["found"] and "No such file" in checks["file #1"]["found"]
