#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every public function says what it does, each parameter, who owns what, on which thread, and what it returns."""
import re

import style

DECLARATION = re.compile(r"^FERRY_API(?:_CHECKED)?\s+([^;{]*?)\b(ferry_\w+)\s*\(([^;]*?)\)\s*;", re.M | re.S)
STATUS_NAME = re.compile(r"\bFERRY_(ERR_\w+|OK)\b|\bERR_[A-Z_]+\b")
THREADS = ("any thread", "one thread", "the object's", "inside a callback only")


def parameter_names(text):
    text = " ".join(text.split())
    if text in ("", "void"):
        return []
    names = []
    for part in text.split(","):
        if part.strip() == "...":
            continue
        found = re.search(r"(\w+)\s*(?:\[\w*\])?$", part.strip())
        names.append(found.group(1) if found else part.strip())
    return names


def comment_before(text, offset):
    """The doc comment that ends right before an offset, or None."""
    before = text[:offset].rstrip()
    if not before.endswith("*/"):
        return None
    start = before.rfind("/**")
    if start < 0 or "*/" in before[start:-2]:
        return None
    return before[start:]


def known_statuses(top):
    table = style.read(top, "include/ferry/status.h")
    return {"FERRY_" + name for name in re.findall(r"X\((\w+),", table)}


def section(comment, name):
    """The text of `Name: ...` up to the next section or the end."""
    flat = "\n".join(re.sub(r"^ \* ?", "", line) for line in comment.splitlines())
    found = re.search(r"^%s:(.*?)(?=^(?:Ownership|Threads|Return):|\Z)" % name, flat, re.M | re.S)
    return found.group(1).replace("*/", "").strip() if found else None


def check_function(report, path, line, name, parameters, comment, statuses):
    def complain(text):
        report.add(path, line, "%s() %s" % (name, text))
    if comment is None:
        complain("has no contract (a /** comment directly above)")
        return
    if not re.search(r"\* %s\(\) - \S.*" % name, comment):
        complain("lacks its summary line `%s() - ...`" % name)
    documented = re.findall(r"^ \* @(\w+):[ \t]*(\S.*)?", comment, re.M)
    for parameter in parameter_names(parameters):
        if not any(known == parameter and text for known, text in documented):
            complain("lacks `@%s:` with a sentence" % parameter)
    for known, _ in documented:
        if known not in parameter_names(parameters):
            complain("documents @%s, which is no parameter" % known)
    for wanted in ("Ownership", "Threads", "Return"):
        if not section(comment, wanted):
            complain("lacks the section `%s:`" % wanted)
    threads = section(comment, "Threads")
    if threads and not threads.startswith(THREADS):
        complain("says `Threads: %s`; it must begin with one of: %s" % (threads.split("\n")[0], ", ".join(THREADS)))
    returns = section(comment, "Return") or ""
    for match in STATUS_NAME.finditer(returns):
        full = match.group(0) if match.group(0).startswith("FERRY_") else "FERRY_" + match.group(0)
        if full not in statuses:
            complain("lists %s, which is no status" % match.group(0))
    # What must not be called from a callback says what happens if it is; "as other()" points to one that does.
    if threads and "not from a callback" in threads and "FERRY_ERR_STATE" not in returns and \
            not re.match(r"as ferry_\w+\(\)", returns):
        complain("must not be called from a callback, and does not list FERRY_ERR_STATE")


def main():
    top = style.root()
    report = style.Report("contracts")
    statuses = known_statuses(top)
    for path in style.files(top, ".h", under=("include/ferry",)):
        text = style.read(top, path)
        for match in DECLARATION.finditer(text):
            report.looked_at += 1
            check_function(report, path, style.line_of(text, match.start()), match.group(2), match.group(3),
                           comment_before(text, match.start()), statuses)
        for match in re.finditer(r"^typedef [^;]*?\b(\w+_fn)\(", text, re.M):
            if comment_before(text, match.start()) is None:
                report.add(path, style.line_of(text, match.start()), "callback type %s has no contract" % match.group(1))
        for match in re.finditer(r"^typedef (?:struct|enum|union)\b", text, re.M):
            report.add(path, style.line_of(text, match.start()), "structs, enums and unions are not typedef'd")
        for match in re.finditer(r"^struct \w+ \{[^}]*\(\*\w+\)\(", text, re.M):
            report.add(path, style.line_of(text, match.start()), "no function pointer table in an installed header")
    report.finish()


main()
