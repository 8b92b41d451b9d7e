# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply a prepared network change and roll it back, on the host and without Ansible.

The module ``netplan_apply`` copies this file and what it imports into its state folder and has systemd run it.  It must
run before anything of ours is installed and survive an upgrade in between, so it needs nothing but the standard library
and these copies: the ssh connection, the controller and the collection may all be gone when it acts.

    python3 job.py apply STATE       make the change; takes it back at once when the links do not come up
    python3 job.py rollback STATE    take the change back (timer, or a failed confirmation)
    python3 job.py boot STATE        take the files of an unconfirmed change back before the network starts

``STATE/plan.json`` holds the files before and after the change and what was live before it; ``STATE/outcome.json``
says what happened.  While ``plan.json`` exists a change is armed.

The way back never ends with an error of one step.  Commands may fail, hang or answer nonsense, and files may be
unreadable: everything else is done all the same, what failed is tried again, and the outcome says what was left.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from .._lib.command import run_limited
from .._lib.deadline import ask_until, lock
from .netplan_files import FileState, generated_files, plain, read_netplan_json, read_state, write_json, write_state
from .netplan_live import (
    expectation_problems,
    missing_addresses,
    parse_links,
    replayable_routes,
    strange_addresses,
    without_metric,
)

#: where the rest of the package finds them, too
__all__ = [
    "FileState",
    "expectation_problems",
    "generated_files",
    "missing_addresses",
    "parse_links",
    "read_netplan_json",
    "read_state",
    "replayable_routes",
    "without_metric",
    "write_json",
    "write_state",
]

#: seconds that one command may take
COMMAND_LIMIT = 20.0
#: seconds until planned addresses must be live after the change
LIVE_LIMIT = 20.0
#: seconds over which a restored management address is watched: networkd works in the background and may drop it again
WATCH_LIMIT = 8.0
#: seconds over which it is tried again to bring back what a watch did not; after that the next boot or run has to
LAST_LIMIT = 600.0
#: seconds that the way back waits for whoever makes the change at the same moment
LOCK_LIMIT = 60.0
#: how often the network services are asked to take up the files that were put back
TRIES = 3
TIMER = "sparkthor-netplan-rollback"
BOOT_UNIT = "/etc/systemd/system/sparkthor-netplan-boot-rollback.service"
BOOT_LINK = "/etc/systemd/system/sysinit.target.wants/sparkthor-netplan-boot-rollback.service"

#: netplan writes it where NetworkManager is the whole host's renderer, and so takes every NIC that nobody else has
TAKES_ALL = "/run/NetworkManager/conf.d/10-globally-managed-devices.conf"


def run(argv: list[str], limit: float = COMMAND_LIMIT) -> tuple[int, str, str]:
    """Run a command; one that hangs in the kernel, as on a NIC that is gone, is left behind.  Never raises."""
    try:
        return run_limited(argv, limit)
    except Exception as error:
        return 125, "", f"{argv[0]}: {type(error).__name__}: {error}"


@contextlib.contextmanager
def locked(folder: str, limit: float | None = None) -> Iterator[None]:
    """Hold the state folder's lock: a confirmation and the timer may come in the same second.

    With ``limit`` it goes on without the lock after so many seconds: who has it may hang.
    """
    with contextlib.ExitStack() as stack:
        try:
            handle = stack.enter_context(open(os.path.join(folder, "lock"), "w", encoding="utf-8"))
            if limit is None:
                fcntl.flock(handle, fcntl.LOCK_EX)
            else:
                lock(handle, limit)
        except OSError:
            if limit is None:
                raise
        yield


# --- live state -------------------------------------------------------------------------------------------------------


def live_links() -> dict[str, dict[str, Any]]:
    """Interfaces by name: ``{mtu, up, carrier, mac, addresses: {'a.b.c.d/len': {scope, dynamic, family}}}``."""
    rc, out, err = run(["ip", "-j", "address", "show"])
    if rc:
        raise RuntimeError(f"ip address show failed: {err.strip() or rc}")
    return parse_links(out)


def live_routes() -> list[str]:
    """Routes that no address brings along by itself, as words for ``ip route replace`` (``-4``/``-6`` first)."""
    routes = []
    for family in ("-4", "-6"):
        rc, out, _err = run(["ip", family, "route", "show", "table", "main"])
        if rc == 0:
            routes += [f"{family} {line}" for line in replayable_routes(out)]
    return routes


def management_path_problems(plan: dict[str, Any]) -> list[str]:
    """What the way in has lost since the change was armed."""
    netdev = plan["management"]
    now = live_links()
    problems = [f"{netdev} lost {address}" for address in missing_addresses(plan["live"], now, netdev)]
    if plan["live"].get(netdev, {}).get("up") and not now.get(netdev, {}).get("up"):
        problems.append(f"{netdev} is down")
    routes = set(map(without_metric, live_routes()))
    problems += [
        f"route lost: {route.partition(' ')[2]}"
        for route in plan["routes"]
        if f" dev {netdev} " in f"{route} " and " default " in f" {route} " and without_metric(route) not in routes
    ]
    return problems


# --- making it so -----------------------------------------------------------------------------------------------------


def _ok(argv: list[str], steps: list[str]) -> bool:
    rc, out, err = run(argv)
    steps.append(" ".join(argv) + ("" if rc == 0 else f": rc {rc} {(err or out).strip()[:200]}"))
    return rc == 0


def unit_active(unit: str) -> bool:
    """Whether systemd says that a unit runs."""
    return run(["systemctl", "is-active", "--quiet", unit])[0] == 0


def activate(plan: dict[str, Any], files: dict[str, FileState | None], netdevs: list[str], steps: list[str]) -> bool:
    """Make the network services take up the files of these NICs, and of no other.

    ``netplan apply`` would reconfigure every NIC it knows, the management NIC included.  networkd reloads only files
    that changed on disk, and only ours did; NetworkManager is told to load and raise our profiles only.
    """
    present = [name for name in netdevs if os.path.exists(f"/sys/class/net/{name}")]
    ours = [name for name in present if name in plan["netdevs"]]
    _quieten(plan, ours, steps)
    good = True
    if any("/udev/" in path or path.endswith(".link") for path in files):
        good &= _ok(["udevadm", "control", "--reload"], steps)
    network_manager = unit_active("NetworkManager.service")
    if network_manager and any(path.endswith("90-netplan.rules") for path in files):
        for name in present:
            _ok(["udevadm", "trigger", "--action=change", "--settle", f"/sys/class/net/{name}"], steps)
    if network_manager:
        good &= _let_go(files, ours, steps)
    if any(path.endswith(".network") for path in files):
        good &= _tell_networkd(files, present, network_manager, steps)
    if network_manager:
        good &= _take_up(files, ours, steps)
    return good


#: a lane of a Thor's QSFP cage: its driver takes another MTU only while the link is down ("Device or resource busy")
_LANE = re.compile(r"mgbe[0-9]_0")


def _quieten(plan: dict[str, Any], ours: list[str], steps: list[str]) -> None:
    """Set such lanes down that get another MTU; the network services set them up again."""
    lanes = [name for name in ours if _LANE.fullmatch(name)]
    try:
        live = live_links() if lanes else {}
    except Exception as error:
        # the way back too passes here, and tells the network services all the same
        steps.append(f"links: {type(error).__name__}: {error}")
        return
    wanted = {item["netdev"]: item.get("mtu") for item in plan.get("expect") or ()}
    for name in lanes:
        mtu = live.get(name, {}).get("mtu")
        if wanted.get(name) and mtu != wanted[name]:
            _ok(["ip", "link", "set", "dev", name, "down"], steps)


def _tell_networkd(files: dict[str, FileState | None], present: list[str], spare: bool, steps: list[str]) -> bool:
    """Have networkd take up its files; with ``spare`` it ends, as at the next boot, once nothing asks for it."""
    good = True
    if unit_active("systemd-networkd.service"):
        good &= _ok(["networkctl", "reload"], steps)
        if present:
            good &= _ok(["networkctl", "reconfigure", *present], steps)
        left = [*glob.glob("/run/systemd/network/*.network"), *glob.glob("/etc/systemd/network/*.network")]
        # netplan's generator enables it for one boot ("enabled-runtime")
        if spare and not left and run(["systemctl", "is-enabled", "systemd-networkd.service"])[1].strip() != "enabled":
            _ok(["systemctl", "stop", "systemd-networkd.socket", "systemd-networkd.service"], steps)
    elif any(path.endswith(".network") and state is not None for path, state in files.items()):
        good &= _ok(["systemctl", "start", "systemd-networkd.service"], steps)
    return good


def _nmcli(*words: str) -> list[list[str]]:
    """The rows of an answer in two columns."""
    rc, out, _err = run(["nmcli", "--escape", "no", "--get-values", *words])
    return [list(line.partition(":")[::2]) for line in out.splitlines()] if rc == 0 else []


def active_profiles() -> dict[str, str]:
    """UUID of the profile that NetworkManager has raised on each NIC; a name or file may be anybody's."""
    return {device: uuid for uuid, device in _nmcli("UUID,DEVICE", "connection", "show", "--active")}


def _profiles(files: dict[str, FileState | None]) -> dict[str, tuple[str, FileState | None]]:
    """NetworkManager's profiles among these files: path → the NIC that it names and its state."""
    profiles = {}
    for path, state in files.items():
        folder, name = os.path.split(path)
        if folder.endswith("/system-connections") and not name.startswith("."):
            named = re.search(r"(?m)^interface-name=(.+)$", state["content"]) if state else None
            own = re.fullmatch(r"netplan-(.+)\.nmconnection", name)
            profiles[path] = (named[1] if named else own[1] if own else "", state)
    return profiles


def _hands(files: dict[str, FileState | None], ours: list[str]) -> dict[str, str]:
    """Whose hands these files give our NICs into: networkd, NetworkManager, or (empty) neither's any more."""
    hands = {}
    profiles = _profiles(files).values()
    for name in ours:
        network = f"/run/systemd/network/10-netplan-{name}.network"
        if files.get(network) is not None:
            hands[name] = "networkd"
        elif any(nic == name and state for nic, state in profiles):
            hands[name] = "NetworkManager"
        elif network in files or any(nic == name for nic, _state in profiles):
            hands[name] = ""
    return hands


def _let_go(files: dict[str, FileState | None], ours: list[str], steps: list[str]) -> bool:
    """NetworkManager gives up NICs that are another's from now on, or its DHCP would go on beside networkd.

    With new settings for the carrier it gives up all: it takes them only while it does nothing with a NIC.
    """
    hands = _hands(files, ours)
    states = dict(_nmcli("DEVICE,STATE", "device")) if hands else {}
    renewed = any("/NetworkManager/conf.d/60-" in path for path in files)
    good = True
    for name, hand in hands.items():
        if (renewed or hand != "NetworkManager") and states.get(name, "unmanaged") != "unmanaged":
            good &= _ok(["nmcli", "device", "set", name, "managed", "no"], steps)
    return good


def _take_up(files: dict[str, FileState | None], ours: list[str], steps: list[str]) -> bool:
    """NetworkManager reads what changed, and raises the profiles of our NICs that are its own."""
    good = True
    if any("/NetworkManager/conf.d/60-" in path for path in files):
        good &= _ok(["nmcli", "general", "reload", "conf"], steps)
    profiles = _profiles(files)
    for path, (_nic, state) in sorted(profiles.items()):
        if state is not None:
            good &= _ok(["nmcli", "connection", "load", path], steps)
    if profiles:
        good &= _ok(["nmcli", "connection", "reload"], steps)
    states = dict(_nmcli("DEVICE,STATE", "device"))
    for name, hand in _hands(files, ours).items():
        # where it takes all, a NIC that it is given back gets what a boot would give it
        if (hand == "NetworkManager" or (not hand and os.path.exists(TAKES_ALL))) and states.get(name) == "unmanaged":
            good &= _ok(["nmcli", "device", "set", name, "managed", "yes"], steps)
    loaded = {path: uuid for uuid, path in _nmcli("UUID,FILENAME", "connection", "show")}
    for path, (nic, state) in sorted(profiles.items()):
        if state is not None and nic in ours and path in loaded:
            _ok(["nmcli", "--wait", "15", "connection", "up", loaded[path]], steps)
    return good


def apply(folder: str) -> dict[str, Any]:
    """Make the armed change, wait until it is live, and take it back at once when it does not become so."""
    plan = read_netplan_json(os.path.join(folder, "plan.json"))
    if plan is None:
        return {"result": "nothing armed"}
    steps: list[str] = []
    try:
        with locked(folder):
            for path, state in plan["after"].items():
                if write_state(path, state):
                    steps.append(f"{'removed' if state is None else 'wrote'} {path}")
            activate(plan, plan["after"], plan["netdevs"], steps)
            if not os.path.exists(os.path.join(folder, "plan.json")):
                raise RuntimeError("it took so long that it was rolled back meanwhile")
            for item in plan["drop"]:
                if item["address"] in live_links().get(item["netdev"], {}).get("addresses", {}):
                    _ok(["ip", "address", "del", item["address"], "dev", item["netdev"]], steps)
            for name in plan["reset_mtu"]:
                _ok(["ip", "link", "set", "dev", name, "mtu", "1500"], steps)
        problems = ask_until(
            lambda: expectation_problems(plan["expect"], live_links()), lambda found: not found, LIVE_LIMIT, 0.2
        )
    except Exception as error:
        problems = [f"{type(error).__name__}: {error}"]
    if problems:
        return rollback(folder, "the links did not become as planned: " + "; ".join(problems), steps)
    outcome = {"token": plan["token"], "result": "applied", "steps": steps, "reason": ""}
    with locked(folder):
        # The timer may have been faster; then its outcome stands.
        if os.path.exists(os.path.join(folder, "plan.json")):
            write_json(os.path.join(folder, "outcome.json"), outcome)
    return outcome


class WayBack:
    """One rollback: our files first, everybody's where the way in is lost, then what was live before.

    ``steps`` is what was done, and what of it failed.
    """

    def __init__(self, folder: str, plan: dict[str, Any], steps: list[str]) -> None:
        self.folder, self.plan, self.steps = folder, plan, steps
        self.lost: list[str] = []  # of the way in
        self.unwritten: list[str] = []  # files that are not yet as they were
        self.tries = TRIES

    def run(self, reason: str) -> dict[str, Any]:
        """Keep at it until the way in has been whole for a while.

        networkd acts in the background, and somebody may be in the middle of an apply of their own.
        """
        disturbed = self._tried("other files", changed_since, self.plan) != []
        began, quiet, rounds = time.monotonic(), 0, 0
        while True:
            before, rounds = len(self.steps), rounds + 1
            if not self.lost and self._check_way_in():
                disturbed, self.tries = True, TRIES
            if self.tries:
                self._put_back()
            elif self.unwritten:
                self.write_back()
            self._restore_live()
            quiet = quiet + 1 if len(self.steps) == before else 0
            elapsed = time.monotonic() - began
            # one command that hangs may take all the time, and what it was for has to be tried again
            if (elapsed >= WATCH_LIMIT and rounds > TRIES) or (quiet >= 6 and not disturbed):
                left = self._left()
                outcome = self._outcome(reason, left)
                if not left or elapsed >= LAST_LIMIT:
                    return outcome
                time.sleep(2)
            time.sleep(0.25)

    def _tried(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """The answer, or None where there is none."""
        try:
            return function(*arguments)
        except Exception as error:
            self._note(f"{what}: {type(error).__name__}: {error}")
            return None

    def _note(self, failure: str) -> None:
        if failure not in self.steps:
            self.steps.append(failure)

    def _check_way_in(self) -> bool:
        """Whether the way in has lost something; a host that cannot even list its addresses gets everything back."""
        try:
            self.lost = management_path_problems(self.plan)
        except Exception as error:
            self.lost = [f"{type(error).__name__}: {error}"]
        return bool(self.lost)

    def write_back(self) -> dict[str, FileState | None]:
        """The files as they were; with a lost way in other people's netplan state too."""
        plan = self.plan
        files = {path: plan["before"].get(path) for path in plan["after"]}
        if self.lost:
            generated = self._tried("generated files", generated_files) or {}
            files = {**dict.fromkeys([*plan["after"], *generated]), **plan["others"], **plan["before"]}
            for path in self._tried("other files", changed_since, plan) or []:
                self._tried(path, self._keep, path)
                files.setdefault(path, None)
        self.unwritten = []
        for path, state in files.items():
            try:
                if write_state(path, state):
                    self.steps.append(f"{'removed' if state is None else 'restored'} {path}")
            except Exception as error:
                self.unwritten.append(f"{path} could not be put back: {type(error).__name__}: {error}")
                self._note(self.unwritten[-1])
        return files

    def _keep(self, path: str) -> None:
        kept = read_state(path)
        if kept is not None:
            write_state(os.path.join(self.folder, "replaced-" + os.path.basename(path)), plain(kept))
        said = f"put back {path}, changed by someone else while our change was armed; a copy is in {self.folder}"
        self._note(said)

    def _put_back(self) -> None:
        """The files, and the network services take them up; both again until they have succeeded."""
        files, plan = self.write_back(), self.plan
        netdevs = [*plan["netdevs"], *([plan["management"]] if self.lost else [])]
        good = self._tried("network services", activate, plan, files, netdevs, self.steps)
        way_in = plan["profiles"].get(plan["management"])
        if self.lost and way_in:
            good = _ok(["nmcli", "--wait", "15", "connection", "up", way_in], self.steps) and good
        self.tries = 0 if good and not self.unwritten else self.tries - 1

    def _restore_live(self) -> None:
        """Addresses, MTU, state and routes of all NICs as recorded; ours lose what was not there.

        Where the links cannot be read, nothing is taken to be as it was.
        """
        plan, steps = self.plan, self.steps
        planned: dict[str, dict[str, Any]] = {
            link["netdev"]: {link["address"]: {}} for link in plan["expect"] if link.get("address")
        }
        unknown = {name: {"up": not old["up"], "mtu": 0, "addresses": {}} for name, old in plan["live"].items()}
        unknown = {name: {**link, "addresses": planned.get(name, {})} for name, link in unknown.items()}
        now = self._tried("links", live_links) or unknown
        for name in [*plan["netdevs"], *[other for other in plan["live"] if other not in plan["netdevs"]]]:
            old, live = plan["live"].get(name), now.get(name)
            if old is None or live is None:
                continue
            if old["up"] and not live["up"]:
                _ok(["ip", "link", "set", "dev", name, "up"], steps)
            if old["mtu"] and old["mtu"] != live["mtu"]:
                lane = _LANE.fullmatch(name) and (live["up"] or old["up"])
                states = [["down"], ["mtu", str(old["mtu"])], ["up"]]
                for state in states if lane else states[1:2]:
                    _ok(["ip", "link", "set", "dev", name, *state], steps)
            for address in strange_addresses(plan, name, now) if name in plan["netdevs"] else []:
                _ok(["ip", "address", "del", address, "dev", name], steps)
            for address in missing_addresses(plan["live"], now, name):
                _ok(["ip", "address", "replace", address, "dev", name], steps)
            if live["up"] and not old["up"] and name in plan["netdevs"]:
                _ok(["ip", "link", "set", "dev", name, "down"], steps)
        known = set(map(without_metric, self._tried("routes", live_routes) or []))
        for route in plan["routes"]:
            if without_metric(route) not in known:
                family, _space, words = route.partition(" ")
                _ok(["ip", family, "route", "replace", *words.split()], steps)

    def _left(self) -> list[str]:
        """What of our NICs and of the way in is not as it was, and which files are not."""
        plan = self.plan
        left = list(self.unwritten)
        problems, links = self._tried("way in", management_path_problems, plan), self._tried("links", live_links)
        if problems is None or links is None:
            return [*left, "what addresses the links have cannot be read"]
        for name in plan["netdevs"]:
            old, live = plan["live"].get(name), links.get(name)
            if old is None or live is None:
                continue
            left += [f"{name} lost {address}" for address in missing_addresses(plan["live"], links, name)]
            ours = {link["address"] for link in plan["expect"] if link["netdev"] == name} - set(old["addresses"])
            left += [f"{name} still has {address}" for address in sorted(ours) if address in live["addresses"]]
            left += [f"{name} is down"] if old["up"] and not live["up"] else []
            left += [f"{name} has MTU {live['mtu']}"] if old["mtu"] != live["mtu"] else []
        return [*left, *problems]

    def _outcome(self, reason: str, left: list[str]) -> dict[str, Any]:
        """The report, written as well; only with nothing left to do the change is not armed any more."""
        if self.lost:
            reason += "; the way in was lost: " + "; ".join(self.lost)
        if left:
            reason += "; not yet as it was: " + "; ".join(left)
        result = "failed" if left else "rolled_back"
        steps = list(dict.fromkeys(self.steps))
        outcome = {"token": self.plan["token"], "result": result, "steps": steps[:60], "reason": reason}
        _report(self.folder, outcome)
        return outcome


def _report(folder: str, outcome: dict[str, Any]) -> None:
    """The outcome for the next run; what was said before the change was taken back must not stand."""
    path = os.path.join(folder, "outcome.json")
    try:
        write_json(path, outcome)
    except Exception:  # the disk may be full
        with contextlib.suppress(OSError):
            os.unlink(path)
    if outcome["result"] == "rolled_back":
        finish(folder)


def _armed(folder: str) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The plan of the armed change, or else what there is to say."""
    path = os.path.join(folder, "plan.json")
    plan = read_netplan_json(path)
    if plan is None and os.path.exists(path):
        return None, {"result": "failed", "reason": f"{path} cannot be read", "steps": []}
    return plan, {"result": "nothing armed"}


def rollback(folder: str, reason: str = "", steps: list[str] | None = None) -> dict[str, Any]:
    """Take the armed change back; ``result`` is ``failed`` where something is left, and the change is armed still."""
    with locked(folder, LOCK_LIMIT):
        plan, nothing = _armed(folder)
        if plan is None:
            return nothing
        return WayBack(folder, plan, [] if steps is None else steps).run(
            reason or f"no confirmation within {plan['timeout']} s"
        )


def changed_since(plan: dict[str, Any]) -> list[str]:
    """Foreign netplan files that differ from what they were when the change was armed, new ones included."""
    changed = [path for path, state in plan["others"].items() if read_state(path) != state]
    for folder in ("/etc/netplan", "/run/netplan"):
        if os.path.isdir(folder):
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name)
                if name.endswith(".yaml") and path not in plan["others"] and path not in plan["after"]:
                    changed.append(path)
    return changed


def boot(folder: str) -> dict[str, Any]:
    """A host that went down unconfirmed must not configure itself with the change at its next start.

    Runs before the network services, after netplan's generator has already read the new file: so the generated files
    go back too.
    """
    with locked(folder, LOCK_LIMIT):
        plan, nothing = _armed(folder)
        if plan is None:
            return nothing
        back = WayBack(folder, plan, [])
        back.write_back()
        reason = "; ".join(["the host went down before the change was confirmed", *back.unwritten])
        outcome = {
            "token": plan["token"],
            "result": "failed" if back.unwritten else "rolled_back",
            "steps": back.steps,
            "reason": reason,
        }
        _report(folder, outcome)
    return outcome


def finish(folder: str) -> None:
    """Disarm: nothing of the change may act any more.  The outcome stays until the next run has read it."""
    for path in (os.path.join(folder, "plan.json"), BOOT_LINK, BOOT_UNIT):
        with contextlib.suppress(OSError):
            os.unlink(path)
    run(["systemctl", "stop", f"{TIMER}.timer"], 10)


def main(argv: list[str]) -> int:
    """Command line; the exit status is for the journal only."""
    if len(argv) < 3 or argv[1] not in ("apply", "rollback", "boot"):
        sys.stderr.write(__doc__ or "")
        return 2
    if argv[1] == "rollback":
        outcome = rollback(argv[2], argv[3] if len(argv) > 3 else "")
    else:
        outcome = {"apply": apply, "boot": boot}[argv[1]](argv[2])
    sys.stdout.write(json.dumps(outcome, indent=1) + "\n")
    return 0 if outcome["result"] in ("applied", "rolled_back", "nothing armed") else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
