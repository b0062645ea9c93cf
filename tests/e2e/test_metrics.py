# SPDX-License-Identifier: Apache-2.0
"""What the control port says to Prometheus: the text format to the letter, the same as JSON, and to nobody without the key."""
import http.client
import json
import os
import re
import shutil
import socket
import subprocess

import pytest

import harness
import keys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*"
VALUE = r"[0-9]+(?:\.[0-9]+)?"
PAIR = re.compile(r'(%s)="((?:[^"\\\n]|\\["\\n])*)"(,|$)' % LABEL)
SAMPLE = re.compile(r"(%s)(?:\{(.*)\})? (%s)" % (NAME, VALUE))
TYPES = {"counter", "gauge", "histogram"}
LABELS = {"transport", "peer", "rail", "op", "status", "le", "version", "plane", "reason"}


def labels_of(text):
    found, at = {}, 0
    while at < len(text):
        pair = PAIR.match(text, at)
        assert pair, "labels %r from %d" % (text, at)
        assert pair[1] not in found, "label %s twice" % pair[1]
        found[pair[1]] = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], pair[2])
        at = pair.end()
        assert pair[3] == "," or at == len(text)
    return found


def check_histogram(name, samples):
    """Buckets grow, end with +Inf, and agree with the count; every labelled series has its sum."""
    series = {}
    for suffix, labels, value in samples:
        key = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        series.setdefault(key, []).append((suffix, labels.get("le"), float(value)))
    for key, parts in series.items():
        buckets = [(le, value) for suffix, le, value in parts if suffix == "_bucket"]
        bounds = [float(le) for le, _ in buckets]
        assert bounds == sorted(set(bounds)) and buckets[-1][0] == "+Inf", (name, key)
        assert bounds[0] == 1e-6, "the smallest bucket is a microsecond"
        counts = [value for _, value in buckets]
        assert counts == sorted(counts), (name, key)
        assert [v for s, _, v in parts if s == "_count"] == [counts[-1]], (name, key)
        assert len([v for s, _, v in parts if s == "_sum"]) == 1, (name, key)


def parse(text):
    """{family: (type, [(suffix, labels, value)])}; an AssertionError for anything the format does not allow."""
    families, current, helped = {}, None, None
    assert text.endswith("\n") and "\r" not in text
    seen = set()
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            helped = line.split(" ", 3)[2]
            assert helped not in families and len(line.split(" ", 3)) == 4, line
        elif line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current == helped and kind in TYPES and re.fullmatch(NAME, current), line
            assert kind != "counter" or current.endswith("_total"), line
            families[current] = kind, []
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample, "not a sample: %r" % line
            assert line.split(" ")[0] not in seen or "{" in line, "twice: %s" % line
            labels = labels_of(sample[2] or "")
            assert set(labels) <= LABELS, line
            key = sample[1], tuple(sorted(labels.items()))
            assert key not in seen, "twice: %s" % line
            seen.add(key)
            kind, samples = families[current]
            suffix = sample[1][len(current):]
            assert sample[1].startswith(current), "%s in the family %s" % (line, current)
            assert suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",)), line
            samples.append((suffix, labels, sample[3]))
    for name, (kind, samples) in families.items():
        assert name.startswith("ferry_")
        if kind == "histogram":
            check_histogram(name, samples)
    return families


def total(families, name, **labels):
    return sum(int(value) for _, found, value in families[name][1]
               if all(found.get(k) == v for k, v in labels.items()))


def scrape(name):
    return parse(harness.http_get(name, "/metrics").decode())


@pytest.mark.parametrize("wrong", [
    'ferry_a 1', '# TYPE ferry_a gauge\nferry_a 1', '# HELP ferry_a h\n# TYPE ferry_a counter\nferry_a 1',
    '# HELP ferry_a h\n# TYPE ferry_a gauge\nferry_a{x=1} 1', '# HELP ferry_a h\n# TYPE ferry_a gauge\nferry_b 1',
    '# HELP ferry_a h\n# TYPE ferry_a gauge\nferry_a{op="a\\x"} 1', '# HELP ferry_a h\n# TYPE ferry_a gauge\nferry_a  1',
    '# HELP ferry_a h\n# TYPE ferry_a gauge\nferry_a 1\nferry_a 1',
    '# HELP ferry_a h\n# TYPE ferry_a histogram\nferry_a_bucket{le="0.000001"} 1\nferry_a_sum 1\nferry_a_count 1',
    '# HELP ferry_a h\n# TYPE ferry_a histogram\nferry_a_bucket{le="0.000001"} 2\nferry_a_bucket{le="+Inf"} 1\n'
    'ferry_a_sum 1\nferry_a_count 1',
])
def test_parser_refuses(wrong):
    with pytest.raises((AssertionError, KeyError)):
        parse(wrong + "\n")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def watched_bench(ferry, start, server, *arguments):
    """A bench that is scraped while it runs: the last text with completed requests, and its peer."""
    place = "127.0.0.1:%d" % free_port()
    start([ferry, "bench", "--json", "--target", server.name, "--transport", "hp_tcp", "--op", "read", "--block", 4096,
           "--duration", 30, "--set", "rpc_server_port=" + place.split(":")[1], *arguments])

    def busy():
        try:
            text = harness.http_get(place, "/metrics").decode()
        except (OSError, AssertionError):
            return None
        return text if total(parse(text), "ferry_requests_total", status="completed", op="read") > 100 else None
    return harness.wait_until(busy, 20, "the bench has moved something"), place


def test_both_sides_are_told_in_the_format(ferry, serve, start):
    server = serve()
    text, place = watched_bench(ferry, start, server)
    here, there = parse(text), scrape(server.name)
    assert total(here, "ferry_transport_up", transport="hp_tcp") == 1
    assert total(here, "ferry_rail_bytes_total", transport="hp_tcp", peer=server.name, op="read") > 0
    assert total(here, "ferry_requests_total", transport="hp_tcp", status="failed") == 0
    assert total(there, "ferry_served_operations_total", transport="hp_tcp") > 0
    assert total(there, "ferry_requests_total") == 0
    # Counters only grow.
    later = scrape(place)
    for name, (kind, samples) in here.items():
        if kind == "counter":
            now = {tuple(sorted(labels.items())): float(value) for _, labels, value in later[name][1]}
            for _, labels, value in samples:
                assert now[tuple(sorted(labels.items()))] >= float(value), (name, labels)


def test_promtool_finds_nothing(ferry, serve, start):
    if shutil.which("promtool") is None:
        pytest.skip("no promtool (it comes with the package prometheus, which starts a server)")
    text, _ = watched_bench(ferry, start, serve())
    run = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=20,
                         check=False)
    assert run.returncode == 0 and not run.stdout and not run.stderr, run.stdout + run.stderr


def test_json_says_the_same(serve):
    server = serve()
    families, got = scrape(server.name), json.loads(harness.http_get(server.name, "/metrics.json"))
    assert [m["name"] for m in got["metrics"]] == list(families)
    for metric in got["metrics"]:
        kind, samples = families[metric["name"]]
        assert metric["type"] == kind and metric["help"]
        if kind == "histogram":
            continue
        assert [s["labels"] for s in metric["samples"]] == [labels for _, labels, _ in samples]
        if metric["name"] != "ferry_process_cpu_seconds_total":
            assert [float(s["value"]) for s in metric["samples"]] == [float(value) for _, _, value in samples]


def test_guide_and_dashboard_name_what_there_is(serve):
    """Every metric is in the guide, and the dashboard asks for nothing else."""
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")
    with open(os.path.join(top, "operations.md"), encoding="utf-8") as f:
        guide = set(re.findall(r"`(ferry_\w+)`", f.read()))
    with open(os.path.join(top, "grafana-dashboard.json"), encoding="utf-8") as f:
        board = json.load(f)
    there = set(scrape(serve().name)) | {"ferry_refused_total"}
    assert guide == there
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    names = {re.sub("_bucket$", "", name) for expr in asked for name in re.findall(r"\bferry_\w+", expr)}
    assert names and names <= there


def reply_to(name, method, path, body=None):
    connection = http.client.HTTPConnection(name, timeout=5 * harness.PATIENCE)
    try:
        connection.request(method, path, body)
        reply = connection.getresponse()
        return reply.status, reply.getheader("Content-Type"), reply.read()
    finally:
        connection.close()


def test_form_of_the_answer(serve):
    name = serve().name
    assert reply_to(name, "GET", "/metrics")[:2] == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert reply_to(name, "GET", "/metrics.json")[:2] == (200, "application/json")
    assert reply_to(name, "HEAD", "/metrics")[0] == 200
    assert reply_to(name, "POST", "/metrics")[0] in (403, 405, 415)


def test_without_the_key_nobody_is_told(serve, tmp_path):
    path, key = keys.make_key(tmp_path)
    name = serve(*keys.use(path)).name
    for url in ("/metrics", "/metrics.json"):
        status, _, body = reply_to(name, "GET", url)
        assert status == 401 and b"ferry_" not in body
    with keys.Control(name, key) as control:
        told = control.get("/metrics.json")
    refused = [m for m in told["metrics"] if m["name"] == "ferry_refused_total"][0]
    assert sum(s["value"] for s in refused["samples"] if s["labels"]["plane"] == "control") >= 2
