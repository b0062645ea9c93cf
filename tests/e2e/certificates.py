# SPDX-License-Identifier: Apache-2.0
"""Certificates for the scenarios, made with openssl(1): a CA, and engines of various merits."""
import os
import subprocess


def openssl(*arguments, **options):
    done = subprocess.run(["openssl", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                          **options)
    assert done.returncode == 0, (arguments, done.stdout.decode(errors="replace"))


class Certificate:
    """Paths of a certificate and its key, and of the CA that it goes with."""

    def __init__(self, cert, key, ca):
        self.cert, self.key, self.ca = cert, key, ca

    def settings(self, **others):
        """Pairs of setting and value."""
        return {"tls.cert": self.cert, "tls.key": self.key, "tls.ca": self.ca, **others}

    def use(self, **others):
        """The arguments with which a command takes it."""
        return [part for name, value in self.settings(**others).items() for part in ("--set", "%s=%s" % (name, value))]

    def environment(self, **others):
        return {"FERRY_" + name.upper().replace(".", "_"): value for name, value in self.settings(**others).items()}


class Authority:
    """A CA with a folder of its own."""

    def __init__(self, folder, name="ca", kind="prime256v1"):
        self.folder, self.name, self.kind = str(folder), name, kind
        os.makedirs(self.folder, exist_ok=True)
        self.cert, self.key = self.path(name + ".pem"), self.path(name + ".key")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:" + kind, "-nodes", "-days", "30",
                "-subj", "/CN=test " + name, "-keyout", self.key, "-out", self.cert)

    def path(self, name):
        return os.path.join(self.folder, name)

    def issue(self, name, hosts=("IP:127.0.0.1", "IP:::1", "DNS:localhost"), begin="-1 day", end="+20 days",
              usage="serverAuth,clientAuth"):
        """A certificate for the hosts, valid between two times as date(1) reads them."""
        key, request, cert, more = (self.path(name + part) for part in (".key", ".csr", ".pem", ".ext"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:" + self.kind, "-nodes", "-subj", "/CN=" + name,
                "-keyout", key, "-out", request)
        os.chmod(key, 0o600)
        with open(more, "w", encoding="ascii") as f:
            f.write("[ext]\nbasicConstraints=CA:FALSE\nextendedKeyUsage=%s\n" % usage)
            if hosts:
                f.write("subjectAltName=%s\n" % ",".join(hosts))
        database = self.path(name + ".index")
        open(database, "w", encoding="ascii").close()
        with open(self.path(name + ".cnf"), "w", encoding="ascii") as f:
            f.write("[ca]\ndefault_ca=d\n[d]\ndatabase=%s\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n"
                    "new_certs_dir=%s\n[p]\ncommonName=supplied\n" % (database, self.folder))

        def stamp(text):
            return subprocess.run(["date", "-u", "-d", text, "+%Y%m%d%H%M%SZ"], stdout=subprocess.PIPE, timeout=20,
                                  check=True).stdout.decode().strip()
        openssl("ca", "-batch", "-notext", "-config", self.path(name + ".cnf"), "-cert", self.cert, "-keyfile",
                self.key, "-in", request, "-out", cert, "-startdate", stamp(begin), "-enddate", stamp(end), "-extfile",
                more, "-extensions", "ext")
        return Certificate(cert, key, self.cert)
