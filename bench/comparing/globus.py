# SPDX-License-Identifier: MIT
"""The Grid Community Toolkit of Debian between far hosts: gatekeepers with the fork job manager, GridFTP servers, and a
certificate authority of their own. All of it lies in the run's temporary folder, and ends with its namespaces."""

import contextlib
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile
import time

from . import sources

# Programs and their packages, for jobs and for files.
COMMON_TOOLS = {"grid-proxy-init": "globus-proxy-utils", "openssl": "openssl"}
JOB_TOOLS = {
    "globusrun": "globus-gram-client-tools",
    "globus-gatekeeper": "globus-gatekeeper",
    "globus-job-manager": "globus-gram-job-manager",
    "globus-fork-starter": "globus-gram-job-manager-fork",
    **COMMON_TOOLS,
}
FILE_TOOLS = {
    "globus-url-copy": "globus-gass-copy-progs",
    "globus-gridftp-server": "globus-gridftp-server-progs",
    **COMMON_TOOLS,
}

PARALLEL = (1, 4, 8, 16)  # of globus-url-copy -p; the best one counts
JOB_PORT, FILE_PORT = 2119, 2811
JOB_USER = "aplib-grid"  # exists in the namespaces alone: a gatekeeper runs nothing as root
SUBJECT = "/O=Grid/OU=APlib/CN="
POLICY = f"""access_id_CA X509 '{SUBJECT}CA'
pos_rights globus CA:sign
cond_subjects globus '"/O=Grid/*"'
"""
JOB = "&(executable=/bin/echo)(arguments=hello)"
SECONDS_MAX = 60  # of a server's start


class Grid:
    """Servers on the hosts of an Internet, and a user at its desk. Nothing is there before the first use."""

    def __init__(self, net):
        self.net = net
        self.folder = None
        self.started = None  # which servers
        self.parallel = {}  # the best of each kind of transfer

    def set_up(self, servers):
        """Those of a name, "jobs" or "files", are started once."""
        if self.started is None:
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix="grid-", dir=self.net.folder))
            self.folder.chmod(0o755)
            self.make_authority()
            self.make_user()
            self.started = set()
        if servers not in self.started:
            self.started.add(servers)
            for host in self.net.network.hosts[:-1]:
                {"jobs": self.start_gatekeeper, "files": self.start_file_server}[servers](host)

    def make_authority(self):
        """A certificate authority, and what it has signed for all hosts and the user."""
        trusted = self.folder / "trusted"
        trusted.mkdir()
        own = ["-x509", "-days", "2"]
        self.openssl("req", *own, *self.request("CA"), "-out", self.folder / "CA.pem")
        name = self.openssl("x509", "-in", self.folder / "CA.pem", "-noout", "-hash").strip()
        shutil.copy(self.folder / "CA.pem", trusted / f"{name}.0")
        (trusted / f"{name}.signing_policy").write_text(POLICY, encoding="ascii")
        signs = ["-CA", self.folder / "CA.pem", "-CAkey", self.folder / "CA.key", "-CAcreateserial", "-days", "2"]
        for name in ["user", *[host.name for host in self.net.network.hosts]]:
            wish, more = self.folder / f"{name}.request", self.folder / f"{name}.more"
            more.write_text(f"subjectAltName=DNS:{name}\n", encoding="ascii")
            self.openssl("req", *self.request(name), "-out", wish)
            self.openssl("x509", "-req", *signs, "-in", wish, "-extfile", more, "-out", self.folder / f"{name}.pem")

    def request(self, name):
        return ["-newkey", "rsa:2048", "-nodes", "-subj", SUBJECT + name, "-keyout", self.folder / f"{name}.key"]

    def openssl(self, *words):
        return sources.run(["openssl", *words])

    def make_user(self):
        """Who runs jobs, what hosts are called, and the user's proxy certificate."""
        home = self.folder / "home"
        taken = {user.pw_uid for user in pwd.getpwall()}
        number = next(n for n in range(60000, 65000) if n not in taken)
        home.mkdir()
        os.chown(home, number, number)
        for name in ("state", "log"):
            (self.folder / name).mkdir()
            (self.folder / name).chmod(0o1777)
        self.cover("/etc/passwd", f"{JOB_USER}:x:{number}:{number}::{home}:/bin/sh\n")
        self.cover("/etc/hosts", "".join(f"{host.address} {host.name}\n" for host in self.net.network.hosts))
        for name, local in (("jobs", JOB_USER), ("files", "root")):
            (self.folder / f"{name}.map").write_text(f'"{SUBJECT}user" {local}\n', encoding="ascii")
        environment = self.environment("user", "desk")
        sources.run(["grid-proxy-init", "-q", "-valid", "24:00"], env=environment)

    def cover(self, path, more):
        """The file has these lines, too, for this script and what it starts: the mount ends with its namespaces."""
        longer = self.folder / pathlib.Path(path).name
        longer.write_text(pathlib.Path(path).read_text(encoding="utf-8") + more, encoding="utf-8")
        sources.run(["mount", "--bind", longer, path])

    def environment(self, name, host):
        """Of a program that is `name` and runs on the host."""
        return dict(
            os.environ,
            GLOBUS_HOSTNAME=str(host),
            GRIDMAP=str(self.folder / "files.map"),
            X509_CERT_DIR=str(self.folder / "trusted"),
            X509_USER_CERT=str(self.folder / f"{name}.pem"),
            X509_USER_KEY=str(self.folder / f"{name}.key"),
            X509_USER_PROXY=str(self.folder / "proxy"),
        )

    def start_gatekeeper(self, host):
        log, services, manager = (self.folder / name for name in ("log", "services", "manager.conf"))
        lines = [f"-log-pattern {log}/jobs", f"-state-file-dir {self.folder / 'state'}"]
        lines.append(f"-x509-cert-dir {self.folder / 'trusted'}")
        manager.write_text("\n".join([*lines, ""]), encoding="utf-8")
        services.mkdir(exist_ok=True)
        program = shutil.which("globus-job-manager")
        service = f"stderr_log,local_cred - {program} globus-job-manager -conf {manager} -type fork\n"
        (services / "jobmanager-fork").write_text(service, encoding="utf-8")
        words = ["globus-gatekeeper", "-f", "-p", JOB_PORT, "-l", log / f"gatekeeper-{host}"]
        words += ["-grid_services", services, "-gridmap", self.folder / "jobs.map"]
        words += ["-x509_cert_dir", self.folder / "trusted"]
        words += ["-x509_user_cert", self.folder / f"{host}.pem", "-x509_user_key", self.folder / f"{host}.key"]
        self.serve(host, JOB_PORT, [*words, "-pidfile", self.folder / f"gatekeeper-{host}.pid"])

    def start_file_server(self, host):
        words = ["globus-gridftp-server", "-p", FILE_PORT, "-allow-root", "-hostname", host]
        words += ["-control-interface", host.address, "-data-interface", host.address]
        self.serve(host, FILE_PORT, [*words, "-l", self.folder / "log" / f"files-{host}"])

    def serve(self, host, port, words):
        """Starts the server, and waits until it answers."""
        environment = self.environment(host, host)
        del environment["X509_USER_PROXY"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = host.popen(words, env=environment, **quiet)
        end = time.monotonic() + SECONDS_MAX
        while not answers(host, port):
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                raise sources.Unusable(f"{words[0]} does not answer on {host}")
            time.sleep(0.05)

    def hello(self):
        """The seconds of a job on both hosts at once that only prints: two globusruns, as one takes but one host."""
        self.set_up("jobs")
        commands = [["globusrun", "-o", "-r", f"{host}/jobmanager-fork", JOB] for host in self.net.network.hosts[:-1]]
        begun = time.monotonic()
        texts = self.net.together(commands, self.environment("user", "desk"))
        seconds = time.monotonic() - begun
        if texts != ["hello\n"] * len(texts):
            raise sources.Unusable(f"globusrun printed {texts}")
        return seconds

    def by_url_copy(self, way, source, folder):
        """Before the first transfer of its kind each number of connections is tried, and the fastest stays."""
        self.set_up("files")
        kind = (way, source, self.net.round_trip_ms)
        if kind not in self.parallel:
            seconds = {count: self.url_copy(way, source, folder, count) for count in PARALLEL}
            self.parallel[kind] = min(seconds, key=seconds.get)
        return self.url_copy(way, source, folder, self.parallel[kind])

    def url_copy(self, way, source, folder, count):
        pathlib.Path(folder, source.name).unlink(missing_ok=True)
        there, here = f"gsiftp://{self.net.host}", "file://"
        if way == "get":
            there, here = here, there
        words = ["globus-url-copy", "-p", str(count), f"{here}{source}", f"{there}{folder}/{source.name}"]
        return self.net.seconds(*words, environment=self.environment("user", "desk"))


def answers(host, port):
    with contextlib.suppress(OSError), host.inside(), socket.create_connection((host.address, port), SECONDS_MAX):
        return True
    return False
