# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firewall of one host: what is loaded, what lasts, and the change between the two under a timed rollback."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import time
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Host
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.sandbox import sandbox
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.state import HostState
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import Wanted
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json, write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.ssh import server_port
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import firewall_watch
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall import (
    MARKER,
    WARM_UP,
    FirewallError,
    Policy,
    restore_text,
    ruleset,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall_watch import RULES, TABLE, canonical

UNIT = "sparkthor-firewall.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
WATCH = "sparkthor-firewall-watch.service"
WATCH_PATH = f"/etc/systemd/system/{WATCH}"
LIBRARY = "/usr/local/lib/sparkthor"
PROGRAM = f"{LIBRARY}/firewall-watch"
RUN = "/run/sparkthor-firewall"
TIMER = "sparkthor-firewall-rollback"
LIMIT = 20.0
# Long enough for a connection that is in use to show a packet
WARM_UP_SECONDS = 2.0

# A change that nobody confirmed is gone by then, whatever lies in RUN
ARMED_GRACE = 5.0

# What both units may do: change the ruleset of the host's network, and nothing else. They have no /tmp of their own,
# for which the one that loads the table would have to wait at boot.
SANDBOX = (
    sandbox(families=["AF_UNIX", "AF_NETLINK"], capabilities=["CAP_NET_ADMIN"], without=["PrivateTmp"])
    + """
IPAddressDeny=any
ProcSubset=pid
ProtectProc=invisible
UMask=0077
"""
)

UNIT_TEXT = f"""{MARKER}
[Unit]
Description=Firewall of sparkthor.cluster (an nftables table of its own)
DefaultDependencies=no
Wants=network-pre.target
Before=network-pre.target shutdown.target
Conflicts=shutdown.target
# nftables.service and ufw.service may flush all rules when they start: load ours after them.
# {WATCH} does so when they are restarted later.
After=local-fs.target systemd-modules-load.service nftables.service ufw.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=@NFT@ -f {RULES}
ExecReload=@NFT@ -f {RULES}
ExecStop=-@NFT@ delete table inet {TABLE}
{SANDBOX}
[Install]
WantedBy=sysinit.target
"""

WATCH_TEXT = f"""{MARKER}
[Unit]
Description=Watch over the cluster's firewall
# whoever stops the firewall means it
BindsTo={UNIT}
After={UNIT}
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=/usr/bin/python3 -IB {PROGRAM} @NFT@
# a comparison takes five commands of {firewall_watch.COMMAND_LIMIT:g} s at most
WatchdogSec=180
SyslogIdentifier={WATCH.removesuffix(".service")}
Restart=always
RestartSec=1
RuntimeDirectory={WATCH.removesuffix(".service")}
RuntimeDirectoryPreserve=restart
# it has to act when memory is short, and when all processors are busy
OOMScoreAdjust=-900
CPUWeight=1000
MemoryMax=64M
{SANDBOX}
[Install]
WantedBy={UNIT}
"""

STRINGS = {"type": "list", "elements": "str", "default": []}
PORTS = {"type": "list", "elements": "int", "default": []}
ARGUMENTS: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "plan": {"type": "dict", "default": {}},
    "trusted": {"type": "dict", "default": {}},
    "ssh_ports": {"type": "list", "elements": "int", "default": [22]},
    "ssh_sources": STRINGS,
    "api_port": {"type": "int", "default": 0},
    "api_sources": STRINGS,
    "sources": STRINGS,
    "interfaces": STRINGS,
    "tcp_ports": PORTS,
    "udp_ports": PORTS,
    "mdns": {"type": "bool", "default": False},
    "vrrp_peers": STRINGS,
    "rollback_timeout": {"type": "int", "default": 45},
    "step": {"type": "str", "choices": ["start", "confirm"]},
    "token": {"type": "str", "no_log": False},
}


def program() -> str:
    """What the watch's unit runs, as it lies on a host."""
    return f"{MARKER}\n{inspect.getsource(firewall_watch)}"


def lasting_files(text: str, nft: str) -> list[dict[str, str]]:
    """The ruleset, the unit that loads it at boot, and the one that watches over it."""
    return [
        {"path": RULES, "content": text, "mode": "0600"},
        {"path": UNIT_PATH, "content": UNIT_TEXT.replace("@NFT@", nft), "mode": "0644"},
        {"path": PROGRAM, "content": program(), "mode": "0644"},
        {"path": WATCH_PATH, "content": WATCH_TEXT.replace("@NFT@", nft), "mode": "0644"},
    ]


class Firewall:
    """One host's table, file and unit."""

    def __init__(self, params: dict[str, Any], check: bool) -> None:
        self.params = params
        self.check = check
        self.nft = firewall_watch.find_nft()
        # without nft there is no table of ours to take away, and files and unit need none
        if not self.nft and params.get("state") != "absent":
            raise FirewallError("nft is not installed on this host; install the package nftables")
        port = server_port()
        self.ssh_ports = sorted(set(params["ssh_ports"]) | ({port} if port else set()))

    def text(self) -> str:
        names = (
            *("trusted", "ssh_sources", "api_port", "api_sources", "sources", "interfaces", "tcp_ports", "udp_ports"),
            "vrrp_peers",
        )
        return ruleset(Policy(ssh_ports=self.ssh_ports, mdns=self.params["mdns"], **{n: self.params[n] for n in names}))

    def files(self, text: str, check: bool) -> HostState:
        """The part that makes it last."""
        wanted = {
            "directories": [{"path": LIBRARY, "mode": "0755"}],
            "files": lasting_files(text, self.nft),
            "units": [
                {"name": UNIT, "enabled": True, "state": "started"},
                {"name": WATCH, "enabled": True, "state": "started", "restart_on": [PROGRAM, WATCH_PATH]},
            ],
        }
        return HostState(Wanted.parse(wanted), Host(run=run_limited), check)

    def listing(self, *options: str) -> str:
        """Our table as it is loaded; empty if it is not."""
        if not self.nft:
            return ""
        code, out, err = run_limited([self.nft, *options, "list", "table", "inet", TABLE], LIMIT)
        if code == 0:
            return out
        if "No such file" in err:
            return ""
        raise FirewallError(f"nft cannot list the table inet {TABLE}: {err.strip()}")

    def trial(self, path: str) -> tuple[list[str], str]:
        """Load the ruleset where it can hurt nobody, and read back what the kernel makes of it."""
        code, _out, err = run_limited([self.nft, "--check", "--file", path], LIMIT)
        if code != 0:
            raise FirewallError(f"nft refuses the ruleset: {err.strip()}")
        script = (
            f'"$0" -f "$1" && "$0" -s list table inet {TABLE} && echo "#json" && "$0" -s -j list table inet {TABLE}'
        )
        code, out, err = run_limited(["unshare", "--net", "--", "/bin/sh", "-c", script, self.nft, path], LIMIT)
        if code != 0:
            raise FirewallError(f"the kernel refuses the ruleset: {err.strip()}")
        plain, _sign, document = out.partition("#json\n")
        return canonical(document), plain

    def load(self, path: str) -> None:
        code, _out, err = run_limited([self.nft, "-f", path], LIMIT)
        if code != 0:
            raise FirewallError(f"nft cannot load {path}: {err.strip()}")

    def compare(self, folder: str) -> dict[str, Any]:
        """What differs, in files, unit and table; nothing is changed."""
        text = self.text()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        candidate = os.path.join(folder, "candidate.nft")
        write_atomic(candidate, text.encode(), 0, 0, 0o600)
        wanted, wanted_text = self.trial(candidate)
        live_json = self.listing("-s", "-j")
        live = canonical(live_json) if live_json else []
        files = self.files(text, check=True).run()
        diff = list(files.diff)
        table_changed = live != wanted
        if table_changed:
            before = self.listing("-s")
            # Where only the loaded table drifted there is no other sign of it
            diff.append(
                {
                    "before_header": f"loaded table inet {TABLE}",
                    "after_header": f"loaded table inet {TABLE}",
                    "before": before,
                    "after": wanted_text,
                }
            )
        return {
            "text": text,
            "candidate": candidate,
            "wanted": wanted,
            "table_changed": table_changed,
            "files_changed": files.changed,
            "result": {
                "changed": table_changed or files.changed,
                "table_changed": table_changed,
                "changed_paths": files.changed_paths,
                "changed_units": files.changed_units,
                "ssh_ports": self.ssh_ports,
                "confirmed": False,
                "diff": diff,
            },
        }

    @staticmethod
    def unconfirmed() -> bool:
        """Whether a change waits for its confirmation: without it the host goes back to what was before."""
        return os.path.exists(os.path.join(RUN, "armed.json"))

    def start(self) -> dict[str, Any]:
        if not self.check:
            self.take_back_unconfirmed()
        folder = f"{RUN}-check" if self.check else RUN
        try:
            found = self.compare(folder)
        finally:
            if self.check:
                shutil.rmtree(folder, ignore_errors=True)
        result: dict[str, Any] = found["result"]
        if self.check or not result["changed"]:
            shutil.rmtree(folder, ignore_errors=True)
            return result
        if not found["table_changed"]:
            # Nothing that is loaded changes, so nobody can be cut off
            self.files(found["text"], check=False).run()
            shutil.rmtree(folder, ignore_errors=True)
            return result
        if not self.params["token"]:
            raise FirewallError("a changed table is loaded by the action plugin of this module only")
        self.arm(found)
        return {**result, "started": True}

    def arm(self, found: dict[str, Any]) -> None:
        """The way back first, then the change."""
        before = self.listing("-s")
        restore = os.path.join(RUN, "restore.nft")
        write_atomic(restore, restore_text(before).encode(), 0, 0, 0o600)
        # the watch leaves the table alone until then
        began = time.monotonic()
        until = began + self.params["rollback_timeout"] + ARMED_GRACE
        state = {"token": self.params["token"], "wanted": found["wanted"], "text": found["text"], "until": until}
        write_atomic(os.path.join(RUN, "armed.json"), json.dumps(state).encode(), 0, 0, 0o600)
        if not before:
            warm = os.path.join(RUN, "warm-up.nft")
            write_atomic(warm, WARM_UP.encode(), 0, 0, 0o600)
        self.timer(restore)
        try:
            if not before:
                self.load(warm)
                time.sleep(WARM_UP_SECONDS)
            self.load(found["candidate"])
            if time.monotonic() - began > self.params["rollback_timeout"] - 1:
                raise FirewallError(
                    "loading the ruleset took as long as the host waits with its way back "
                    f"({self.params['rollback_timeout']} s), so it was rolled back; raise firewall_rollback_timeout"
                )
        except FirewallError:
            self.take_back_unconfirmed()
            raise

    def timer(self, restore: str) -> None:
        argv = ["systemd-run", "--quiet", "--collect", f"--unit={TIMER}", "--timer-property=AccuracySec=100ms"]
        argv += [f"--on-active={self.params['rollback_timeout']}s", "--description=Roll back an unconfirmed firewall"]
        # a kernel that is short of memory refuses once, and the timer does not come again
        argv += ["--property=Restart=on-failure", "--property=RestartSec=3s"]
        code, _out, err = run_limited([*argv, self.nft, "-f", restore], LIMIT)
        if code != 0:
            raise FirewallError(f"the rollback cannot be armed, so the ruleset is not loaded: {err.strip()}")

    @staticmethod
    def disarm() -> None:
        run_limited(["systemctl", "stop", f"{TIMER}.timer", f"{TIMER}.service"], LIMIT)

    def take_back_unconfirmed(self) -> None:
        """A change whose controller died is rolled back before a new one is thought about."""
        restore = os.path.join(RUN, "restore.nft")
        if os.path.exists(restore) and os.path.exists(os.path.join(RUN, "armed.json")):
            self.load(restore)
            self.disarm()
        shutil.rmtree(RUN, ignore_errors=True)

    def confirm(self) -> dict[str, Any]:
        armed = read_json(os.path.join(RUN, "armed.json"))
        if armed.get("token") != self.params["token"]:
            raise FirewallError("there is no change of this run to confirm; another run may have taken it back")
        self.disarm()
        live_json = self.listing("-s", "-j")
        if (canonical(live_json) if live_json else []) != armed["wanted"]:
            shutil.rmtree(RUN, ignore_errors=True)
            raise FirewallError(
                "the host took the change back because the controller did not come back in time "
                f"({self.params['rollback_timeout']} s); the previous firewall is in place. Check that "
                "firewall_ssh_sources and firewall_ssh_ports let the controller in"
            )
        self.files(armed["text"], check=False).run()
        shutil.rmtree(RUN, ignore_errors=True)
        return {"changed": True, "confirmed": True, "ssh_ports": self.ssh_ports}

    def absent(self) -> dict[str, Any]:
        """Only opens, so nobody can be cut off."""
        # the watch first: it would load the table again
        wanted = {
            "restore": [RULES, UNIT_PATH, WATCH_PATH, PROGRAM],
            "units": [{"name": unit, "enabled": False, "state": "stopped"} for unit in (WATCH, UNIT)],
        }
        if not self.check:
            self.take_back_unconfirmed()
        before = self.listing("-s")
        done = HostState(Wanted.parse(wanted), Host(run=run_limited), self.check).run()
        diff = list(done.diff)
        if before:
            header = f"loaded table inet {TABLE}"
            diff.append({"before_header": header, "after_header": header, "before": before, "after": ""})
            if not self.check and self.listing("-s"):
                code, _out, err = run_limited([self.nft, "delete", "table", "inet", TABLE], LIMIT)
                if code != 0:
                    raise FirewallError(f"the table inet {TABLE} cannot be removed: {err.strip()}")
        return {
            "changed": bool(before) or done.changed,
            "table_changed": bool(before),
            "changed_paths": done.changed_paths,
            "changed_units": done.changed_units,
            "ssh_ports": self.ssh_ports,
            "confirmed": False,
            "diff": diff,
        }
