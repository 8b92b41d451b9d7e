# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies from one host to many, measured: the collection's own, rsync beside it, and other engines.

    python -m tests.integration.model_store.bench make --hosts 16      hosts, addresses, tools
    python -m tests.integration.model_store.bench run --counts 3,7     figures, a JSON line each
    python -m tests.integration.model_store.bench run --engines all --counts 3
    python -m tests.integration.model_store.bench destroy

Tools are Debian packages that are unpacked outside the machine's own tree and brought into the hosts, which need none
of them otherwise.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sparklab import Lab

from .rig import GIB, TOP, Figure, Rig, metered, warm

PACKAGES = (
    "rsync", "libpopt0", "libxxhash0", "aria2", "libaria2-0", "libc-ares2", "libssh2-1", "libsqlite3-0", "libxml2",
    "libicu72", "uftp", "socat", "zstd", "rclone",
)  # fmt: skip
TOOLS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparkthor-lab" / "bench-tools"
#: the same for every host: what was unpacked is found before what the host has
ENVIRONMENT = (
    "export PATH=/opt/tools/usr/bin:/opt/tools/usr/sbin:$PATH "
    "LD_LIBRARY_PATH=/opt/tools/usr/lib/x86_64-linux-gnu:/opt/tools/lib/x86_64-linux-gnu; "
)
SOURCE, TARGET = "/mnt/store/src", "/mnt/store/in"
#: Real hosts have processors of their own; these share the machine's, which at a link's rate must not be the slower
#: one (rig.IDLE_NEEDED). The rates are those of four processors.
SLOWER = min(1.0, (os.cpu_count() or 1) / 4)
SIZES = {3: (GIB, 400.0 * SLOWER), 7: (GIB, 400.0 * SLOWER), 15: (GIB // 2, 200.0 * SLOWER)}


def fetch_tools() -> None:
    if (TOOLS / ".complete").exists():
        return
    TOOLS.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "-q", *PACKAGES], cwd=TOOLS, check=True, stdout=subprocess.DEVNULL)
    for package in TOOLS.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, TOOLS / "tree"], check=True)
    (TOOLS / ".complete").touch()


def bring_tools(rig: Rig) -> None:
    fetch_tools()
    for host in rig.hosts:
        with subprocess.Popen(["tar", "-C", TOOLS / "tree", "-c", "."], stdout=subprocess.PIPE) as archive:
            subprocess.run(
                rig.lab.enter_command(host, ["bash", "-c", "mkdir -p /opt/tools && tar -C /opt/tools -x"]),
                stdin=archive.stdout,
                check=True,
            )


def address(rig: Rig, host: str, half: int = 0) -> str:
    return str(rig.fabric[host]["links"][half]["address"]).partition("/")[0]


def together(work: Callable[[str], Any], hosts: Sequence[str]) -> None:
    with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
        list(pool.map(work, hosts))


def memory_available() -> int:
    text = Path("/proc/meminfo").read_text()
    return int(text.split("MemAvailable:", 1)[1].split()[0]) * 1024


class Bench:
    def __init__(self, rig: Rig, count: int, size: int) -> None:
        self.rig = rig
        self.count = count
        self.head, *self.receivers = rig.hosts[: count + 1]
        self.size = size
        need, free = size * (count + 1) + (1 << 30), memory_available()
        assert need < free, (
            f"{count} copies on tmpfs need {need / GIB:.1f} GiB of memory, {free / GIB:.1f} are available"
        )
        rig.each(rig.hosts, "rm -rf /mnt/store/in /mnt/store/.incoming")
        known = rig.lab.folder / f"contents-{size}.json"
        if not known.exists():
            rig.each([self.head], f"rm -rf {SOURCE}")
            known.write_text(json.dumps(rig.fill(self.head, SOURCE, size)))
            for other in rig.lab.folder.glob("contents-*.json"):
                if other != known:
                    other.unlink()
        self.contents = json.loads(known.read_text())
        self.names = [entry[0] for entry in self.contents]

    def on(self, host: str, command: str, timeout: float = 900) -> str:
        return self.rig.on(host, ENVIRONMENT + command, timeout=timeout)

    def measure(self, engine: str, work: Callable[[], None], notes: str = "") -> Figure:
        self.rig.each(self.receivers, f"rm -rf {TARGET} && mkdir -p {TARGET}")
        warm(self.size * self.count)
        with metered() as meter:
            work()
        figure = Figure(engine, self.count, self.size, self.rig.mbit, meter.seconds, meter.idle, meter.busy, notes)
        self.check(engine)
        return figure

    def check(self, engine: str) -> None:
        found = self.rig.digests(self.receivers, TARGET)
        for host, digests in found.items():
            # some leave notes of their own beside the files
            assert set(digests) >= set(self.names), f"{engine}: {host} has {digests}"

    # -- the collection's own ------------------------------------------------------------------------------------------

    def fanout(self, shape: str = "chain") -> Figure:
        self.rig.each(self.receivers, "rm -rf /mnt/store/.incoming")
        figure = self.rig.measure(self.count, self.contents, f"{SOURCE}/blobs", shape=shape)
        found = self.rig.digests(self.receivers, "/mnt/store/.incoming")
        for host, digests in found.items():
            assert sorted(digests) == sorted(self.names), f"{host} has {digests}"
        self.rig.each(self.receivers, "rm -rf /mnt/store/.incoming")
        return figure

    # -- rsync ---------------------------------------------------------------------------------------------------------

    def _rsync_daemons(self) -> None:
        config = f"use chroot = no\\nuid = root\\ngid = root\\n[in]\\npath = {TARGET}\\nread only = no\\n"
        self.rig.each(
            self.receivers,
            ENVIRONMENT + f"printf '{config}' > /run/rsyncd.conf; pkill -x rsync; "
            "systemd-run -q --collect --unit=bench-rsync --setenv=LD_LIBRARY_PATH=$LD_LIBRARY_PATH "
            "/opt/tools/usr/bin/rsync --daemon --no-detach --config=/run/rsyncd.conf; sleep 0.5",
        )

    def _push(self, host: str, half: int) -> None:
        self.on(self.head, f"rsync -r --whole-file {SOURCE}/blobs/ rsync://{address(self.rig, host, half)}/in/")

    def rsync(self, parallel: bool) -> Figure:
        self._rsync_daemons()
        try:
            if parallel:
                halves = {host: number % 2 for number, host in enumerate(self.receivers)}
                note = "each receiver over one half, by turns"
                return self.measure(
                    "rsync from the head, parallel",
                    lambda: together(lambda host: self._push(host, halves[host]), self.receivers), note,
                )  # fmt: skip
            return self.measure(
                "rsync from the head, serial", lambda: [self._push(host, 0) for host in self.receivers] and None
            )
        finally:
            self.rig.each(self.receivers, "systemctl stop bench-rsync")

    def rsync_chain(self) -> Figure:
        """Every host fetches from the one before it once that has everything: what a script of rsyncs does."""
        config = f"use chroot = no\\n[in]\\npath = {TARGET}\\n[src]\\npath = {SOURCE}/blobs\\n"
        self.rig.each(
            [self.head, *self.receivers],
            ENVIRONMENT + f"printf '{config}' > /run/rsyncd.conf; systemd-run -q --collect --unit=bench-rsync "
            "--setenv=LD_LIBRARY_PATH=$LD_LIBRARY_PATH "
            "/opt/tools/usr/bin/rsync --daemon --no-detach --config=/run/rsyncd.conf; sleep 0.5",
        )

        def work() -> None:
            source = f"{address(self.rig, self.head)}/src"
            for host in self.receivers:
                self.on(host, f"rsync -r --whole-file rsync://{source}/ {TARGET}/")
                source = f"{address(self.rig, host)}/in"

        try:
            return self.measure("rsync chain, host by host", work)
        finally:
            self.rig.each([self.head, *self.receivers], "systemctl stop bench-rsync")

    # -- others --------------------------------------------------------------------------------------------------------

    def socat_chain(self) -> Figure:
        """A tar stream that every host writes and passes on, one for each half: fast, and nothing more."""

        def work() -> None:
            lists = [self.names[half::2] for half in (0, 1)]
            for half in (0, 1):
                port = 7000 + half
                for number, host in reversed(list(enumerate(self.receivers))):
                    sink = f"tar -C {TARGET} -x"
                    if number + 1 < len(self.receivers):
                        onward = address(self.rig, self.receivers[number + 1], half)
                        sink = f"tee >({sink}) | socat -u - TCP:{onward}:{port},retry=50,interval=0.1"
                    here = address(self.rig, host, half)
                    self.rig.on(
                        host,
                        f"cat > /run/chain{half}.sh <<'X'\n{ENVIRONMENT}\n"
                        f"socat -u TCP-LISTEN:{port},bind={here},reuseaddr - | {sink}; wait\nX\n"
                        f"systemd-run -q --collect --unit=chain{half} bash /run/chain{half}.sh",
                    )
            time.sleep(0.5)
            together(
                lambda half: self.on(
                    self.head,
                    f"tar -C {SOURCE}/blobs -c {' '.join(lists[int(half)])} | socat -u - "
                    f"TCP:{address(self.rig, self.receivers[0], int(half))}:{7000 + int(half)}",
                ),
                ["0", "1"],
            )
            for host in self.receivers:
                self.rig.on(host, "while systemctl is-active -q chain0 chain1; do sleep 0.1; done")

        return self.measure("tar over socat and tee", work, "no resume, no digests, no key")

    def aria2(self) -> Figure:
        """BitTorrent with a tracker; a client announces one address, so one half."""
        torrent = self._torrent()
        swarm = self.rig.hosts[: self.count + 1]
        try:
            write = f"open('/run/x.torrent', 'wb').write(bytes.fromhex('{torrent.hex()}'))"
            for host in swarm:
                self.rig.on(host, "python3 -", stdin=write)

            def work() -> None:
                for host in swarm:
                    here = address(self.rig, host)
                    folder = "/mnt/store/bt" if host == self.head else TARGET
                    link = f"mkdir -p {folder}; ln -sfn {SOURCE}/blobs {folder}/m; " if host == self.head else ""
                    self.rig.on(
                        host,
                        f"{ENVIRONMENT} {link} rm -f /run/bt-done; systemd-run -q --collect --unit=bench-bt "
                        f"--setenv=LD_LIBRARY_PATH=$LD_LIBRARY_PATH /opt/tools/usr/bin/aria2c -q --dir={folder} "
                        f"--interface={here} --bt-external-ip={here} --listen-port=7100 --enable-dht=false "
                        "--bt-enable-lpd=false --enable-peer-exchange=true --seed-ratio=0 --seed-time=100 "
                        "--file-allocation=none --bt-max-peers=0 --bt-tracker-interval=2 --check-integrity=false "
                        f"{'--bt-seed-unverified=true' if host == self.head else ''} "
                        "--on-bt-download-complete=/run/bt-hook /run/x.torrent",
                    )
                end = time.monotonic() + 120
                waiting = set(self.receivers)
                while waiting and time.monotonic() < end:
                    time.sleep(0.5)
                    waiting = {
                        host for host in waiting if not self.rig.on(host, "cat /run/bt-done 2>/dev/null", check=False)
                    }
                assert not waiting, f"not done: {waiting}"

            hook = "#!/bin/sh\necho done > /run/bt-done\n"
            for host in swarm:
                self.rig.on(host, "cat > /run/bt-hook; chmod 755 /run/bt-hook", stdin=hook)
            return self.measure("aria2 (BitTorrent)", work, "one half: a client announces one address; no key")
        finally:
            self.rig.each(swarm, "systemctl stop bench-bt; rm -rf /mnt/store/bt")
            self.rig.each([self.head], "systemctl stop bench-tracker")

    def _torrent(self) -> bytes:
        """A torrent of the contents, with a tracker on the head's fabric address."""
        piece = 1 << 20
        # pieces run over the ends of files; all files but the last are whole numbers of pieces here
        program = f"""
import hashlib
for name in {self.names!r}:
    with open("{SOURCE}/blobs/" + name, "rb") as file:
        while block := file.read({piece}):
            print(hashlib.sha1(block).hexdigest())
"""
        hashes = bytes.fromhex("".join(self.rig.on(self.head, "python3 -", stdin=program).split()))
        tracker = f"""
import hashlib, http.server, urllib.parse
peers = {{}}
class Tracker(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        peers[self.client_address[0]] = int(query["port"][0])
        known = b"".join(
            b"d2:ip%d:%s4:porti%dee" % (len(ip), ip.encode(), port) for ip, port in peers.items()
        )
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"d8:intervali2e12:min intervali1e5:peersl" + known + b"ee")
http.server.ThreadingHTTPServer(("{address(self.rig, self.head)}", 6969), Tracker).serve_forever()
"""
        self.rig.on(
            self.head,
            "cat > /run/tracker.py; systemd-run -q --collect --unit=bench-tracker python3 /run/tracker.py",
            stdin=tracker,
        )
        info = {
            "name": "m",
            "piece length": piece,
            "pieces": hashes,
            "files": [{"length": entry[1], "path": [entry[0]]} for entry in self.contents],
        }
        return bencode({"announce": f"http://{address(self.rig, self.head)}:6969/announce", "info": info})

    def uftp(self) -> Figure:
        """Multicast of one half; the rate must be told, and what is lost is sent again."""
        rate = int(self.rig.mbit * 930)

        def work() -> None:
            for host in self.receivers:
                self.rig.on(
                    host,
                    f"{ENVIRONMENT} mkdir -p /mnt/store/tmp; systemd-run -q --collect --unit=bench-uftp "
                    f"--setenv=LD_LIBRARY_PATH=$LD_LIBRARY_PATH /opt/tools/usr/bin/uftpd -d -D {TARGET} "
                    f"-I {address(self.rig, host)} -B 8388608",
                )
            time.sleep(1)
            self.on(
                self.head,
                f"cd {SOURCE}/blobs && uftp -q -R {rate} -I {address(self.rig, self.head)} -b 8800 -B 8388608 * ",
            )

        try:
            return self.measure("UFTP (multicast)", work, "one half; no TCP, so the rate must be known; no key")
        finally:
            self.rig.each(self.receivers, "systemctl stop bench-uftp; rm -rf /mnt/store/tmp")

    def rclone(self) -> Figure:
        """From the head's HTTP server to all at once, four files at a time over one half."""
        self.rig.on(
            self.head,
            f"systemd-run -q --collect --unit=bench-rclone /opt/tools/usr/bin/rclone serve http {SOURCE}/blobs "
            f"--addr {address(self.rig, self.head)}:7200; sleep 1",
        )
        try:
            where = f"--http-url http://{address(self.rig, self.head)}:7200/"
            return self.measure(
                "rclone from the head, parallel",
                lambda: together(lambda host: self.on(host, f"rclone -q copy :http: {TARGET} {where}"), self.receivers),
                "one half; every host loads the head",
            )
        finally:
            self.rig.each([self.head], "systemctl stop bench-rclone")


def bencode(value: Any) -> bytes:
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return b"%d:%s" % (len(value), value)
    if isinstance(value, list):
        return b"l" + b"".join(bencode(item) for item in value) + b"e"
    return b"d" + b"".join(bencode(key) + bencode(value[key]) for key in sorted(value)) + b"e"


ENGINES: dict[str, Callable[[Bench], Figure]] = {
    "ours": lambda bench: bench.fanout(),
    "tree": lambda bench: bench.fanout("tree"),
    "rsync-parallel": lambda bench: bench.rsync(parallel=True),
    "rsync-serial": lambda bench: bench.rsync(parallel=False),
    "rsync-chain": lambda bench: bench.rsync_chain(),
    "socat": lambda bench: bench.socat_chain(),
    "aria2": lambda bench: bench.aria2(),
    "uftp": lambda bench: bench.uftp(),
    "rclone": lambda bench: bench.rclone(),
}


def resting(seconds: float = 3.0) -> str:
    with metered() as meter:
        time.sleep(seconds)
    return f"machine at rest: {meter.idle:.0%} idle, {meter.busy / meter.seconds:.2f} CPU s a second"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "run", "destroy"])
    parser.add_argument("--name", default="store")
    parser.add_argument("--subnet", default="10.79.40.0/24")
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--topology", default="switch", choices=["switch", "ring"])
    parser.add_argument("--counts", default="3,7,15")
    parser.add_argument("--engines", default="ours,rsync-parallel,rsync-serial")
    parser.add_argument("--size", type=float, help="GiB, in place of the bench's own")
    parser.add_argument("--mbit", type=float)
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "make":
        rig = Rig.make(arguments.name, arguments.hosts, arguments.subnet, arguments.topology, suite="bookworm")
        rig.mount(rig.hosts)
        bring_tools(rig)
        return
    lab = Lab(arguments.name, TOP / ".lab")
    if arguments.what == "destroy":
        lab.destroy()
        return
    rig = Rig(lab, arguments.topology)
    rig.address()
    engines = list(ENGINES) if arguments.engines == "all" else arguments.engines.split(",")
    for count in map(int, arguments.counts.split(",")):
        size, mbit = SIZES.get(count, (GIB, 400.0 * SLOWER))
        size = int(arguments.size * GIB) if arguments.size else size
        rig.rate(arguments.mbit or mbit)
        try:
            bench = Bench(rig, count, size)
        except AssertionError as error:
            print(f"{count} hosts: {error}", flush=True)
            continue
        print(resting(), flush=True)
        for engine in engines:
            try:
                figure = ENGINES[engine](bench)
            except Exception as error:
                print(f"{engine}: {type(error).__name__}: {str(error)[:1500]}", flush=True)
                continue
            print(figure.line(), flush=True)
            if arguments.results:
                with arguments.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(figure.document()) + "\n")


if __name__ == "__main__":
    main()
