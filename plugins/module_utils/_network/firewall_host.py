# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firewall of one host: what is loaded, what lasts, and the change between the two under a timed rollback."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.arguments import checked
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Host
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.state import HostState
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import Wanted
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json, write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import firewall_watch
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall import (
    WARM_UP,
    FirewallError,
    restore_text,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall_watch import TABLE, canonical

RUN = "/run/sparkthor-firewall"
TIMER = "sparkthor-firewall-rollback"
LIMIT = 20.0
# Long enough for a connection that is in use to show a packet
WARM_UP_SECONDS = 2.0

# A change that nobody confirmed is gone by then, whatever lies in RUN
ARMED_GRACE = 5.0

ITEMS: dict[str, Any] = {"type": "list", "elements": "dict", "default": []}
ARGUMENTS: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "ruleset": {"type": "path", "required": True},
    **dict.fromkeys(("directories", "files", "units"), ITEMS),
    "restore": {"type": "list", "elements": "str", "default": []},
    "rollback_timeout": {"type": "int", "default": 45},
    "step": {"type": "str", "choices": ["start", "confirm"]},
    "token": {"type": "str", "no_log": False},
}


class Firewall:
    """One host's table, and the files and units that make it last."""

    def __init__(self, params: dict[str, Any], check: bool) -> None:
        self.params = params
        self.check = check
        self.nft = firewall_watch.find_nft()
        # without nft there is no table of ours to take away, and files and unit need none
        if not self.nft and params.get("state") != "absent":
            raise FirewallError("nft is not installed on this host; install the package nftables")

    def text(self) -> str:
        """The ruleset among the files."""
        path = self.params["ruleset"]
        found = next((file["content"] for file in self.params["files"] if file["path"] == path), None)
        if found is None:
            named = ", ".join(file["path"] for file in self.params["files"]) or "nothing"
            raise FirewallError(
                f"ruleset is {path}, and files writes {named}: the ruleset must be a file that files writes, so add an "
                f"item with path: {path} and its template to files, or give ruleset the path of the item that has it"
            )
        return str(found)

    def lasting(self, check: bool) -> HostState:
        """The part that makes it last, or with state ``absent`` takes it away."""
        named = ("directories", "files", "restore", "units")
        return HostState(Wanted.parse({name: self.params[name] for name in named}), Host(run=run_limited), check)

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
        files = self.lasting(check=True).run()
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
            "candidate": candidate,
            "wanted": wanted,
            "table_changed": table_changed,
            "files_changed": files.changed,
            "result": {
                "changed": table_changed or files.changed,
                "table_changed": table_changed,
                "changed_paths": files.changed_paths,
                "changed_units": files.changed_units,
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
            compared = self.compare(folder)
        finally:
            if self.check:
                shutil.rmtree(folder, ignore_errors=True)
        result: dict[str, Any] = compared["result"]
        if self.check or not result["changed"]:
            shutil.rmtree(folder, ignore_errors=True)
            return result
        if not compared["table_changed"]:
            # Nothing that is loaded changes, so nobody can be cut off
            self.lasting(check=False).run()
            shutil.rmtree(folder, ignore_errors=True)
            return result
        if not self.params["token"]:
            raise FirewallError("a changed table is loaded by the action plugin of this module only")
        self.arm(compared)
        return {**result, "started": True}

    def arm(self, compared: dict[str, Any]) -> None:
        """The way back first, then the change."""
        before = self.listing("-s")
        restore = os.path.join(RUN, "restore.nft")
        write_atomic(restore, restore_text(before).encode(), 0, 0, 0o600)
        # the watch leaves the table alone until then
        began = time.monotonic()
        until = began + self.params["rollback_timeout"] + ARMED_GRACE
        state = {"token": self.params["token"], "wanted": compared["wanted"], "until": until}
        write_atomic(os.path.join(RUN, "armed.json"), json.dumps(state).encode(), 0, 0, 0o600)
        if not before:
            warm = os.path.join(RUN, "warm-up.nft")
            write_atomic(warm, WARM_UP.encode(), 0, 0, 0o600)
        self.timer(restore)
        try:
            if not before:
                self.load(warm)
                time.sleep(WARM_UP_SECONDS)
            self.load(compared["candidate"])
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
        self.lasting(check=False).run()
        shutil.rmtree(RUN, ignore_errors=True)
        return {"changed": True, "confirmed": True}

    def absent(self) -> dict[str, Any]:
        """Only opens, so nobody can be cut off."""
        if not self.check:
            self.take_back_unconfirmed()
        before = self.listing("-s")
        # units first, of which one would load the table again
        done = self.lasting(self.check).run()
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
            "confirmed": False,
            "diff": diff,
        }


def difference(arguments: Mapping[str, Any]) -> str:
    """What is not as the arguments of the module ``firewall_apply`` want it; nothing is changed."""
    firewall = Firewall(checked(ARGUMENTS, arguments), True)
    if firewall.unconfirmed():
        return "an unconfirmed change of the firewall is armed"
    found = firewall.start()
    what = ", ".join(found["changed_paths"] + found["changed_units"]) or "the loaded table"
    return what if found["changed"] else ""
