"""A PostgreSQL server of its own for a test session: Debian's, in a folder of its own, without a network."""

import glob
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SECONDS = 60


class PostgresServer:
    """Runs until `stop`; `new_database` gives the URL of an empty database."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self.programs = programs()
        self.count = 0
        if os.geteuid() == 0:  # the server refuses to run as root
            shutil.chown(self.folder, "postgres", "postgres")
        self._run("initdb", "--pgdata", str(self.folder / "data"), "--auth=trust", "--username=postgres", "--no-sync")
        settings = f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c fsync=off"
        log = str(self.folder / "log")
        self._run("pg_ctl", "start", "--wait", "-D", str(self.folder / "data"), "-l", log, "-o", settings)

    def new_database(self) -> str:
        self.count += 1
        name = f"graph{self.count}"
        self._run("createdb", "-h", str(self.folder), "-U", "postgres", name)
        return f"postgresql+psycopg://postgres@/{name}?host={self.folder}"

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "--mode=immediate", "-D", str(self.folder / "data"))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        done = subprocess.run(
            command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"


def programs() -> Path | None:
    """The folder with the server's programs: Debian keeps them aside of the path."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda folder: float(folder.split("/")[4]))
    if found:
        return Path(found[-1])
    there = shutil.which("initdb")
    return Path(there).parent if there else None
