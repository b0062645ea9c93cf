#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Includes point down the tree only, rooms form no cycle, nothing looks sideways where it must not."""
import os
import re

import style

# Lower rooms are known by higher ones and never the reverse.
RANKS = {
    "base": 0,
    "access": 1, "foreign": 1, "reactor": 1, "wire": 1, "offload": 1,
    "memory": 2, "topology": 2, "config": 2,
    "control": 3, "metadata": 3,
    "transport": 4,
    "transport/*": 5,
    "runtime": 6,
}
STORES = ("peer", "http", "etcd", "redis")
# The explicit list of transports has to name them.
LIST_OF_TRANSPORTS = "src/transport/registry.c"
# What two device transports share; the only room that a transport may know beside its own.
SHARED_BY_TRANSPORTS = "transport/device"
OUTSIDERS = ("tools", "bench", "compat", "python", "examples")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+([<"])([^>"]+)[>"]', re.M)


def room_of(path):
    """The room of a file below src/: "base", "transport", or "transport/hp_tcp"."""
    parts = path.split("/")
    if parts[0] == "transport" and len(parts) > 2:
        return "transport/" + parts[1]
    return parts[0]


def rank_of(room):
    return RANKS["transport/*"] if room.startswith("transport/") else RANKS.get(room)


def resolve(top, source, name):
    """The path below src/ that an include of a source file names, or None."""
    beside = os.path.normpath(os.path.join(os.path.dirname(source), name))
    for candidate in (beside, "src/" + name):
        if candidate.startswith("src/") and os.path.exists(os.path.join(top, candidate)):
            return candidate[len("src/"):]
    return None


def check_inside(report, source, line, target, edges):
    room, other = room_of(source[len("src/"):]), room_of(target)
    if room == other:
        check_stores(report, source, line, target)
        return
    if rank_of(room) is None or rank_of(other) is None:
        report.add(source, line, "room %s or %s has no place in the order; add it to RANKS" % (room, other))
        return
    edges.setdefault(room, {})[other] = (source, line)
    if rank_of(room) == RANKS["transport/*"] and rank_of(other) == RANKS["transport/*"]:
        if other != SHARED_BY_TRANSPORTS:
            report.add(source, line, "a transport includes another one: " + target)
    elif rank_of(other) > rank_of(room) and source != LIST_OF_TRANSPORTS:
        report.add(source, line, "%s includes upward, from %s" % (room, other))


def check_stores(report, source, line, target):
    mine = os.path.splitext(os.path.basename(source))[0]
    theirs = os.path.splitext(os.path.basename(target))[0]
    if source.startswith("src/metadata/") and mine in STORES and theirs in STORES and mine != theirs:
        report.add(source, line, "a store includes another one: " + target)


def check_cycles(report, edges):
    done, path = set(), []

    def visit(room):
        if room in path:
            via = path[-1]
            source, line = edges[via][room]
            report.add(source, line, "rooms form a circle: " + " > ".join(path[path.index(room):] + [room]))
            return
        if room in done:
            return
        path.append(room)
        for other in sorted(edges.get(room, {})):
            visit(other)
        path.pop()
        done.add(room)

    for room in sorted(edges):
        visit(room)


def main():
    top = style.root()
    report = style.Report("includes")
    edges = {}
    for source in style.files(top, ".c", ".h", under=("src", "include") + OUTSIDERS):
        report.looked_at += 1
        text = style.read(top, source)
        for match in INCLUDE.finditer(text):
            line = style.line_of(text, match.start())
            target = resolve(top, source, match.group(2))
            if source.startswith("src/"):
                if target and source != LIST_OF_TRANSPORTS:
                    check_inside(report, source, line, target, edges)
            elif source.startswith("include/"):
                if match.group(1) == '"' or os.path.exists(os.path.join(top, "src", match.group(2))):
                    report.add(source, line, "an installed header includes " + match.group(2))
            elif os.path.exists(os.path.join(top, "src", match.group(2))) or "src/" in match.group(2):
                if not os.path.exists(os.path.join(top, os.path.dirname(source), match.group(2))):
                    report.add(source, line, "only installed headers are allowed here, not " + match.group(2))
    check_cycles(report, edges)
    report.finish()


main()
