# SPDX-License-Identifier: MIT
"""Real servers for tests, in their own temporary folders: sshd, and a Slurm cluster of three hosts."""
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import namespaces  # noqa: E402

os.environ["PATH"] += ":/usr/sbin:/sbin"


def missing(programs):
    """Why a test of these programs is skipped, such as "needs the tool sshd (package openssh-server)", or None."""
    for program, package in programs.items():
        if shutil.which(program) is None:
            return f"needs the tool {program} (package {package})"
    return None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Folder:
    """A temporary folder, removed with its contents."""

    def __init__(self, name):
        self.path = Path(tempfile.mkdtemp(prefix=f"aplib-{name}-"))
        self.path.chmod(0o755)

    def write(self, name, text, mode=0o600):
        file = self.path / name
        file.write_text(text)
        file.chmod(mode)
        return file

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


class Sshd:
    """This user's server on 127.0.0.1, or one on each of the `hosts` of a Network. `command` is an ssh that may log in
    there."""

    NEEDS = {"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"}

    def __init__(self, more="", authorize=True, hosts=None):
        self.folder = Folder("sshd")
        path = self.folder.path
        self.port = 2222 if hosts else free_port()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path / name], check=True)
        key = (path / "user.pub").read_text() if authorize else ""
        self.folder.write("authorized", key)
        self.log = path / "log"
        self.folder.write(
            "sshd_config",
            "\n".join(
                [
                    f"Port {self.port}",
                    f"ListenAddress {'0.0.0.0' if hosts else '127.0.0.1'}",
                    f"HostKey {path}/host",
                    f"AuthorizedKeysFile {path}/authorized",
                    "StrictModes no",
                    "UsePAM no",
                    "PasswordAuthentication no",
                    "KbdInteractiveAuthentication no",
                    f"PidFile {path}/pid",
                    "LogLevel VERBOSE",
                    more,
                    "",
                ]
            ),
        )
        names = ",".join(f"[{host.address}]:{self.port}" for host in hosts or []) or f"[127.0.0.1]:{self.port}"
        self.folder.write("known_hosts", f"{names} {(path / 'host.pub').read_text()}")
        self.folder.write(
            "ssh_config",
            "\n".join(
                [
                    "Host *",
                    f"  Port {self.port}",
                    f"  UserKnownHostsFile {path}/known_hosts",
                    "  GlobalKnownHostsFile /dev/null",
                    "  StrictHostKeyChecking yes",
                    f"  IdentityFile {path}/user",
                    "  IdentitiesOnly yes",
                    "  ProxyCommand none",
                    "",
                ]
            ),
        )
        self.command = f"ssh -F {path}/ssh_config"
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where sshd confines its unprivileged half
        server = [shutil.which("sshd"), "-D", "-f", path / "sshd_config", "-E", self.log]
        self.processes = [host.popen(server) for host in hosts] if hosts else [subprocess.Popen(server)]
        listens = (
            (lambda: self.log.exists() and self.log.read_text().count("Server listening") == len(hosts))
            if hosts
            else self.answers
        )
        if not namespaces.wait_until(listens, 60):
            raise RuntimeError(f"sshd does not answer: {self.log.read_text()}")

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 60) as probe:  # one that is late counts, too
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False

    def close(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        self.folder.remove()


class Slurm:
    """munged, slurmctld, and a slurmd on each host of a Network. Commands run on the first host, and also on those
    `beside` them, which run no jobs."""

    NEEDS = {
        "munged": "munge",
        "slurmctld": "slurm-wlm",
        "slurmd": "slurm-wlm",
        "srun": "slurm-wlm",
        "salloc": "slurm-wlm",
        "sbatch": "slurm-wlm",
    }

    @staticmethod
    def hindrance():
        return missing(Slurm.NEEDS) or namespaces.hindrance()

    def __init__(self, names, beside=()):
        self.folder = Folder("slurm")
        path = self.folder.path
        self.network = namespaces.Network([*names, *beside])
        self.processes = []
        user = pwd.getpwuid(os.geteuid()).pw_name
        (path / "key").write_bytes(os.urandom(128))
        (path / "key").chmod(0o400)
        self.folder.write("cgroup.conf", "CgroupAutomount=no\n")
        hosts = self.network.hosts[:len(names)]
        mine = socket.gethostname()
        lines = [
            "ClusterName=aplib",
            f"SlurmctldHost={mine}({hosts[0].address})",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            "AuthType=auth/munge",
            f"AuthInfo=socket={path}/munge.socket",
            "CredType=cred/munge",
            f"StateSaveLocation={path}/state",
            f"SlurmdSpoolDir={path}/spool.%n",
            f"SlurmctldPidFile={path}/slurmctld.pid",
            f"SlurmdPidFile={path}/slurmd.%n.pid",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "JobAcctGatherType=jobacct_gather/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "ReturnToService=2",
            "KillWait=1",
        ]
        lines += [
            f"NodeName={host.name} NodeHostname={mine} NodeAddr={host.address} Port=6818 CPUs=2 State=UNKNOWN"
            for host in hosts
        ]
        lines += ["PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP", ""]
        self.folder.write("slurm.conf", "\n".join(lines))
        self.folder.write("mpi.conf", f"PMIxCliTmpDirBase={path}/pmix\n")
        for name in ("state", "pmix", *(f"spool.{host.name}" for host in hosts)):
            (path / name).mkdir()
        self.environment = dict(os.environ, SLURM_CONF=str(path / "slurm.conf"))
        self.start(
            hosts[0],
            [
                "munged",
                "--foreground",
                "--force",
                f"--key-file={path}/key",
                f"--socket={path}/munge.socket",
                f"--pid-file={path}/munge.pid",
                f"--log-file={path}/munge.log",
                f"--seed-file={path}/munge.seed",
            ],
        )
        namespaces.wait_until((path / "munge.socket").exists, 60)
        self.start(hosts[0], ["slurmctld", "-D", "-c"])
        for host in hosts:
            # Slurm's hosts assume different names for their PMIx folders, because ours share a file system.
            own_folder = f'mount -t tmpfs none {path}/pmix && exec "$@"'
            self.start(host, ["unshare", "--mount", "sh", "-c", own_folder, "sh", "slurmd", "-D", "-N", host.name])
        if not namespaces.wait_until(
            lambda: self.run(["sinfo", "-h", "-o", "%T %D"]).stdout.strip() == f"idle {len(hosts)}", 60, 0.05
        ):
            raise RuntimeError(f"the hosts do not come up: {self.run(['sinfo', '-lN'])}\n{(path / 'log').read_text()}")

    def start(self, host, words):
        with open(self.folder.path / "log", "a", encoding="utf-8") as log:
            self.processes.append(
                host.popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment)
            )

    def run(self, words, **options):
        return self.network.hosts[0].run(
            words, text=True, capture_output=True, env=self.environment, timeout=200, **options
        )

    def close(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:  # Slurm's daemons miss the signal now and then
                process.kill()
                process.wait()
        self.network.close()
        self.folder.remove()
