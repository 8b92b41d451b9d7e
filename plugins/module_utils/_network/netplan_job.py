# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply a prepared network change and roll it back, on the host and without Ansible.

The module ``netplan_apply`` copies this file into its state folder and has systemd run it.  It must run before
anything of ours is installed and survive an upgrade in between, so it stays one self-contained file that needs nothing
but the standard library: the ssh connection, the controller and the collection may all be gone when it acts.

    python3 job.py apply STATE       make the change; takes it back at once when the links do not come up
    python3 job.py rollback STATE    take the change back (timer, or a failed confirmation)
    python3 job.py boot STATE        take the files of an unconfirmed change back before the network starts

``STATE/plan.json`` holds the files before and after the change and what was live before it; ``STATE/outcome.json``
says what happened.  While ``plan.json`` exists a change is armed.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

#: seconds that one command may take
COMMAND_LIMIT = 20.0
#: seconds until planned addresses must be live after the change
LIVE_LIMIT = 20.0
#: seconds over which a restored management address is watched: networkd works in the background and may drop it again
WATCH_LIMIT = 8.0
TIMER = "sparkthor-netplan-rollback"
BOOT_UNIT = "/etc/systemd/system/sparkthor-netplan-boot-rollback.service"
BOOT_LINK = "/etc/systemd/system/sysinit.target.wants/sparkthor-netplan-boot-rollback.service"

FileState = dict[str, Any]
#: what netplan's generator writes for the network services
GENERATED = (
    "/run/systemd/network/*netplan*",
    "/run/NetworkManager/system-connections/netplan-*",
    "/run/NetworkManager/conf.d/netplan.conf",
    "/run/NetworkManager/conf.d/10-globally-managed-devices.conf",
    "/run/udev/rules.d/*netplan*",
)
#: netplan writes it where NetworkManager is the whole host's renderer, and so takes every NIC that nobody else has
TAKES_ALL = "/run/NetworkManager/conf.d/10-globally-managed-devices.conf"


def run(argv: list[str], limit: float = COMMAND_LIMIT) -> tuple[int, str, str]:
    """Run a command with a time limit; rc 127 when it is not installed, 126 when not to be run, 124 when too slow.

    One that hangs in the kernel, as on a NIC that is gone, is left behind: the way back must go on without it.
    """
    environment = dict(os.environ, LC_ALL="C")
    environment["PATH"] = environment.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
    try:
        # AnsibleModule.run_command has no time limit, and there is no module here
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
        )
    except FileNotFoundError:
        return 127, "", f"{argv[0]}: not installed"
    except OSError as error:
        return 126, "", f"{argv[0]}: {error.strerror}"
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        return 124, "", f"{argv[0]}: no answer within {limit:g} s"
    return process.returncode, out, err


# --- files ------------------------------------------------------------------------------------------------------------


def read_state(path: str) -> FileState | None:
    """Content, mode and owner of a file, or None where there is no regular file."""
    try:
        status = os.lstat(path)
        if not os.path.isfile(path) or os.path.islink(path):
            return None
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as handle:
            content = handle.read()
    except FileNotFoundError:
        return None
    return {"content": content, "mode": status.st_mode & 0o7777, "uid": status.st_uid, "gid": status.st_gid}


def write_state(path: str, state: FileState | None) -> bool:
    """Make a file be as recorded (None: absent), atomically; True when it had to change."""
    current = read_state(path)
    if current == state:
        return False
    if state is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return True
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    temporary = os.path.join(folder, f".{os.path.basename(path)}.sparkthor-tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as handle:
        handle.write(state["content"])
        handle.flush()
        os.fchown(handle.fileno(), state["uid"], state["gid"])
        os.fchmod(handle.fileno(), state["mode"])
        os.fsync(handle.fileno())
    os.rename(temporary, path)
    with contextlib.suppress(OSError):
        folder_descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(folder_descriptor)
        finally:
            os.close(folder_descriptor)
    return True


def generated_files(root: str = "") -> dict[str, FileState]:
    """netplan's generated files below a root folder, by their path without it."""
    found: dict[str, FileState] = {}
    for pattern in GENERATED:
        for path in sorted(glob.glob(root + pattern)):
            state = read_state(path)
            if state is not None:
                found[path[len(root) :]] = state
    return found


def write_json(path: str, value: Any) -> None:
    """Write a private JSON file atomically."""
    write_state(
        path, {"content": json.dumps(value, indent=1) + "\n", "mode": 0o600, "uid": os.geteuid(), "gid": os.getegid()}
    )


def read_json(path: str) -> dict[str, Any] | None:
    """A JSON file as a dict; None when it is missing or was never finished."""
    try:
        with open(path, encoding="utf-8") as handle:
            value = json.load(handle)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold the state folder's lock: a confirmation and the timer may come in the same second."""
    with open(os.path.join(folder, "lock"), "w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


# --- live state -------------------------------------------------------------------------------------------------------


def live_links() -> dict[str, dict[str, Any]]:
    """Interfaces by name: ``{mtu, up, carrier, mac, addresses: {'a.b.c.d/len': {scope, dynamic, family}}}``."""
    rc, out, err = run(["ip", "-j", "address", "show"])
    if rc:
        raise RuntimeError(f"ip address show failed: {err.strip() or rc}")
    return parse_links(out)


def parse_links(text: str) -> dict[str, dict[str, Any]]:
    """Pure part of :func:`live_links`."""
    links: dict[str, dict[str, Any]] = {}
    for item in json.loads(text or "[]"):
        if "ifname" not in item:
            continue
        flags = item.get("flags") or []
        links[item["ifname"]] = {
            "mtu": int(item.get("mtu", 0)),
            "up": "UP" in flags,
            "carrier": "LOWER_UP" in flags,
            "mac": item.get("address", ""),
            "addresses": {
                f"{entry['local']}/{entry['prefixlen']}": {
                    "scope": entry.get("scope", ""),
                    "dynamic": bool(entry.get("dynamic", False)),
                    "family": entry.get("family", "inet"),
                }
                for entry in item.get("addr_info") or []
                if "local" in entry
            },
        }
    return links


def live_routes() -> list[str]:
    """Routes that no address brings along by itself, as words for ``ip route replace`` (``-4``/``-6`` first)."""
    routes = []
    for family in ("-4", "-6"):
        rc, out, _err = run(["ip", family, "route", "show", "table", "main"])
        if rc == 0:
            routes += [f"{family} {line}" for line in replayable_routes(out)]
    return routes


def replayable_routes(text: str) -> list[str]:
    """Pure part of :func:`live_routes`: one line per route, without the kernel's own and without state words."""
    lines = []
    for line in text.splitlines():
        if not line.strip() or line[0].isspace() or " proto kernel" in line or " proto ra" in line:
            continue
        words = [word for word in line.split() if word not in ("linkdown", "dead", "pervasive", "offload")]
        if "expires" in words:
            position = words.index("expires")
            del words[position : position + 2]
        lines.append(" ".join(words))
    return lines


def without_metric(route: str) -> str:
    """The way without its metric: NetworkManager may choose another whenever it raises a profile."""
    return re.sub(r" metric \d+", "", route)


def missing_addresses(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]], netdev: str) -> list[str]:
    """Addresses of one NIC that were there before and are not any more (link-local ones make themselves)."""
    gone = now.get(netdev, {}).get("addresses", {})
    return [
        address
        for address, item in before.get(netdev, {}).get("addresses", {}).items()
        if item["scope"] == "global" and address not in gone
    ]


def management_problems(plan: dict[str, Any]) -> list[str]:
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
    found = {}
    for path, state in files.items():
        folder, name = os.path.split(path)
        if folder.endswith("/system-connections") and not name.startswith("."):
            named = re.search(r"(?m)^interface-name=(.+)$", state["content"]) if state else None
            own = re.fullmatch(r"netplan-(.+)\.nmconnection", name)
            found[path] = (named[1] if named else own[1] if own else "", state)
    return found


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


def expectation_problems(expect: list[dict[str, Any]], links: dict[str, dict[str, Any]]) -> list[str]:
    """Where the live links differ from the plan, one line each."""
    problems = []
    for link in expect:
        name, live = link["netdev"], links.get(link["netdev"])
        if live is None:
            problems.append(f"{name} does not exist")
            continue
        if not live["up"]:
            problems.append(f"{name} is administratively down")
        if link.get("address") and link["address"] not in live["addresses"]:
            problems.append(f"{name} does not have {link['address']}")
        if link.get("mtu") and live["mtu"] != link["mtu"]:
            problems.append(f"{name} has MTU {live['mtu']} instead of {link['mtu']}")
    return problems


def apply(folder: str) -> dict[str, Any]:
    """Make the armed change, wait until it is live, and take it back at once when it does not become so."""
    plan = read_json(os.path.join(folder, "plan.json"))
    if plan is None:
        return {"result": "nothing armed"}
    steps: list[str] = []
    try:
        with locked(folder):
            for path, state in plan["after"].items():
                if write_state(path, state):
                    steps.append(f"{'removed' if state is None else 'wrote'} {path}")
            activate(plan, plan["after"], plan["netdevs"], steps)
            for item in plan["drop"]:
                if item["address"] in live_links().get(item["netdev"], {}).get("addresses", {}):
                    _ok(["ip", "address", "del", item["address"], "dev", item["netdev"]], steps)
            for name in plan["reset_mtu"]:
                _ok(["ip", "link", "set", "dev", name, "mtu", "1500"], steps)
        problems = ["not checked yet"]
        end = time.monotonic() + LIVE_LIMIT
        while problems and time.monotonic() < end:
            problems = expectation_problems(plan["expect"], live_links())
            if problems:
                time.sleep(0.2)
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


def _restore_live(plan: dict[str, Any], netdevs: list[str], steps: list[str]) -> None:
    """Bring addresses, MTU and state of these NICs back to what was recorded."""
    now = live_links()
    for name in netdevs:
        old, live = plan["live"].get(name), now.get(name)
        if old is None or live is None:
            continue
        if old["up"] and not live["up"]:
            _ok(["ip", "link", "set", "dev", name, "up"], steps)
        if old["mtu"] and old["mtu"] != live["mtu"]:
            _ok(["ip", "link", "set", "dev", name, "mtu", str(old["mtu"])], steps)
        for address in missing_addresses(plan["live"], now, name):
            _ok(["ip", "address", "replace", address, "dev", name], steps)


def _put_back(folder: str, plan: dict[str, Any], everything: bool, steps: list[str]) -> None:
    """Restore files and have the network services take them up; ``everything``: other people's netplan state too."""
    files = {path: plan["before"].get(path) for path in plan["after"]}
    netdevs = list(plan["netdevs"])
    if everything:
        files = {**dict.fromkeys([*plan["after"], *generated_files()]), **plan["others"], **plan["before"]}
        netdevs.append(plan["management"])
        for path in changed_since(plan):
            kept = read_state(path)
            if kept is not None:
                write_state(os.path.join(folder, "replaced-" + os.path.basename(path)), kept)
            steps.append(f"put back {path}, changed by someone else while our change was armed; a copy is in {folder}")
            files.setdefault(path, None)
    for path, state in files.items():
        if write_state(path, state):
            steps.append(f"{'removed' if state is None else 'restored'} {path}")
    activate(plan, files, netdevs, steps)
    way_in = plan["profiles"].get(plan["management"])
    if everything and way_in:
        _ok(["nmcli", "--wait", "15", "connection", "up", way_in], steps)
    for name in plan["netdevs"]:
        recorded = plan["live"].get(name, {}).get("addresses", {})
        for address in live_links().get(name, {}).get("addresses", {}):
            if address not in recorded and not address.startswith(("fe80:", "169.254.")):
                _ok(["ip", "address", "del", address, "dev", name], steps)


def _problems_or_all(plan: dict[str, Any]) -> list[str]:
    try:
        return management_problems(plan)
    except Exception as error:  # a host that cannot even list its addresses gets everything back
        return [f"{type(error).__name__}: {error}"]


def rollback(folder: str, reason: str = "", steps: list[str] | None = None) -> dict[str, Any]:
    """Take the armed change back: our files first, everybody's where the way in is lost, then what was live before."""
    steps = [] if steps is None else steps
    with locked(folder):
        plan = read_json(os.path.join(folder, "plan.json"))
        if plan is None:
            return {"result": "nothing armed"}
        reason = reason or f"no confirmation within {plan['timeout']} s"
        lost = _problems_or_all(plan)
        _put_back(folder, plan, bool(lost), steps)
        # networkd acts in the background, and somebody may be in the middle of an apply of their own: keep checking
        # until the way in has been whole for a while
        disturbed = bool(changed_since(plan)) or bool(lost)
        end = time.monotonic() + WATCH_LIMIT
        quiet = 0
        while time.monotonic() < end and (disturbed or quiet < 6):
            before = len(steps)
            if not lost:
                lost = _problems_or_all(plan)
                if lost:
                    disturbed = True
                    _put_back(folder, plan, True, steps)
            _restore_live(plan, [*plan["netdevs"], *[n for n in plan["live"] if n not in plan["netdevs"]]], steps)
            known = set(map(without_metric, live_routes()))
            for route in plan["routes"]:
                if without_metric(route) not in known:
                    family, _space, words = route.partition(" ")
                    _ok(["ip", family, "route", "replace", *words.split()], steps)
            quiet = quiet + 1 if len(steps) == before else 0
            time.sleep(0.25)
        for name in plan["netdevs"]:
            if not plan["live"].get(name, {}).get("up", True):
                _ok(["ip", "link", "set", "dev", name, "down"], steps)
        if lost:
            reason += "; the way in was lost: " + "; ".join(lost)
        outcome = {"token": plan["token"], "result": "rolled_back", "steps": steps[:60], "reason": reason}
        write_json(os.path.join(folder, "outcome.json"), outcome)
        finish(folder)
    return outcome


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
    with locked(folder):
        plan = read_json(os.path.join(folder, "plan.json"))
        if plan is None:
            return {"result": "nothing armed"}
        steps = []
        for path in plan["after"]:
            if write_state(path, plan["before"].get(path)):
                steps.append(f"restored {path}")
        outcome = {
            "token": plan["token"],
            "result": "rolled_back",
            "steps": steps,
            "reason": "the host went down before the change was confirmed",
        }
        write_json(os.path.join(folder, "outcome.json"), outcome)
        finish(folder)
    return outcome


def finish(folder: str) -> None:
    """Disarm: nothing of the change may act any more.  The outcome stays until the next run has read it."""
    for path in (os.path.join(folder, "plan.json"), BOOT_LINK, BOOT_UNIT):
        with contextlib.suppress(FileNotFoundError):
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
