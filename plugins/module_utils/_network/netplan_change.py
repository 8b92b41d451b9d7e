# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide on a netplan change, arm it on the host with its way back, and confirm it.

The order is what keeps a host reachable: everything is looked at first, then the state folder and a systemd timer
that takes the change back are set up, only then does a unit of its own (not the ssh session) make the change, and
only a later connection disarms the timer.
"""

from __future__ import annotations

import contextlib
import inspect as python_inspect
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import ssh
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job

STATE = "/var/lib/sparkthor-netplan"
APPLY_UNIT = "sparkthor-netplan-apply"
NOW_UNIT = "sparkthor-netplan-rollback-now"
#: findings that the user may accept by name, because a change of ours does not touch what they are about
ACCEPTABLE = ("pending_edit", "runtime_address")

_BOOT_UNIT = """\
{marker}
[Unit]
Description=Take back an unconfirmed network change before the network starts
DefaultDependencies=no
RequiresMountsFor={state} /etc/netplan
After=systemd-remount-fs.service
Before=network-pre.target systemd-networkd.service NetworkManager.service systemd-udev-trigger.service
ConditionPathExists={state}/plan.json

[Service]
Type=oneshot
ExecStart={python} {state}/job.py boot {state}
TimeoutStartSec=30
"""

PEER = {
    "host": {"type": "str", "default": ""},
    "address": {"type": "str", "required": True},
    "mtu": {"type": "int", "default": 0},
}
LINK = {
    "netdev": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "mtu": {"type": "int", "default": 0},
    "peers": {"type": "list", "elements": "dict", "default": [], "options": PEER},
}
ARGUMENTS: dict[str, Any] = {
    "state": {
        "type": "str",
        "default": "present",
        "choices": ["present", "adopted", "verified", "inspected", "absent"],
    },
    "links": {"type": "list", "elements": "dict", "default": [], "options": LINK},
    "path": {"type": "path", "default": "/etc/netplan/40-cx7.yaml"},
    "renderer": {"type": "str", "default": "", "choices": ["", "networkd", "NetworkManager"]},
    "management_address": {"type": "str", "default": ""},
    "rollback_timeout": {"type": "int", "default": 60},
    "replace_foreign": {"type": "bool", "default": False},
    "accept": {"type": "list", "elements": "str", "default": [], "choices": ["pending_edit", "runtime_address"]},
    "environment_path": {"type": "path"},
    "environment_variables": {"type": "dict", "default": {}},
    "wait": {"type": "int", "default": 0},
    "confirm": {"type": "bool", "default": True},
    "outcomes": {"type": "str", "default": ""},
    "step": {"type": "str", "default": "start", "choices": ["start", "check", "confirm", "take_back"]},
    "reason": {"type": "str", "default": ""},
    "token": {"type": "str", "default": "", "no_log": False},
}


class ChangeError(Exception):
    """The change cannot or must not be made; nothing was written."""


@dataclass
class Decision:
    """What has to happen on a host."""

    changed: bool = False
    needs_apply: bool = False
    adopted: bool = False
    backup: str = ""
    findings: list[dict[str, Any]] = field(default_factory=list)
    after: dict[str, job.FileState | None] = field(default_factory=dict)
    netdevs: list[str] = field(default_factory=list)
    expect: list[dict[str, Any]] = field(default_factory=list)
    drop: list[dict[str, str]] = field(default_factory=list)
    #: NICs that our file gave an MTU and that now get none: no service puts Ethernet's own back by itself
    reset_mtu: list[str] = field(default_factory=list)
    diff: list[dict[str, str]] = field(default_factory=list)
    renderer: str = ""
    #: of what was set aside for our file: what comes back, and the copies that stay where they are
    restored: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def _text(state: job.FileState | None) -> str:
    return state["content"] if state else ""


def decide_environment(path: str, variables: dict[str, Any]) -> tuple[dict[str, job.FileState | None], dict[str, str]]:
    """The environment file if it has to change, and its diff."""
    wanted = {"content": netplan.render_environment(variables), "mode": 0o644, "uid": 0, "gid": 0}
    current = job.read_state(path)
    if current == wanted:
        return {}, {}
    return {path: wanted}, {
        "before_header": path,
        "after_header": path,
        "before": _text(current),
        "after": wanted["content"],
    }


def blocking(findings: list[dict[str, Any]], accept: list[str], replace_foreign: bool) -> list[dict[str, Any]]:
    """The findings that forbid a change."""
    allowed = set(accept) & set(ACCEPTABLE)
    if replace_foreign:
        allowed |= {"foreign_file", "foreign_address"}
    return [
        item
        for item in findings
        if item["kind"] not in allowed
        and not (replace_foreign and item["kind"] == "foreign_settings" and item.get("alone"))
    ]


def explain(findings: list[dict[str, Any]]) -> str:
    """Findings as one message: what, then how to mend it."""
    return "; ".join(f"{item['message']} ({item['mend']})" for item in findings)


def _free_name(path: str) -> str:
    candidate, number = path + netplan.ASIDE, 1
    while os.path.lexists(candidate):
        number += 1
        candidate = f"{path}{netplan.ASIDE}.{number}"
    return candidate


def decide_present(params: dict[str, Any], management: str) -> Decision:
    """Compare the host with the plan."""
    path, links = params["path"], params["links"]
    decision = Decision()
    if management in {link["netdev"] for link in links}:
        raise ChangeError(f"{management} carries the connection to this host and must not be a fabric NIC")
    content = netplan.render(links, params["renderer"])
    current = job.read_state(path)
    live = job.live_links()
    problems = netplan.link_problems(links, live, netplan.connected_routes())
    drifted = [name for name, found in problems.items() if found]
    same_file = current is not None and current["content"] == content
    if same_file and not drifted:
        wanted = {"content": content, "mode": 0o600, "uid": 0, "gid": 0}
        if current != wanted:
            decision.changed = True
            decision.after = {path: wanted}
            decision.diff.append(
                {
                    "before_header": path,
                    "after_header": path,
                    "before": f"mode {current['mode']:04o}, owner {current['uid']}:{current['gid']}\n",
                    "after": "mode 0600, owner 0:0\n",
                }
            )
        return decision

    seen = netplan.inspect(path, links, params["renderer"])
    decision.findings = seen["findings"]
    decision.renderer = seen["renderer"]
    decision.adopted = bool(seen["foreign"] and seen["adoptable"])
    if decision.adopted and not drifted:
        return decision
    stopped = blocking(seen["findings"], params["accept"], params["replace_foreign"])
    if stopped:
        raise ChangeError(explain(stopped))

    wanted_generated = seen["generated"] if decision.adopted else seen["wanted"]
    ids = seen["ids"]
    after = decision.after
    if not decision.adopted:
        after[path] = {"content": content, "mode": 0o600, "uid": 0, "gid": 0}
        if seen["foreign"]:
            decision.backup = _free_name(path)
            after[decision.backup] = {**current, "mode": 0o600} if current else None
        if not same_file:
            decision.diff.append(
                {
                    "before_header": path,
                    "after_header": path,
                    "before": _text(current),
                    "after": content,
                }
            )
        for other in seen["aside"] if params["replace_foreign"] else []:
            kept = job.read_state(other)
            after[other] = None
            after[_free_name(other)] = kept
            decision.diff.append(
                {
                    "before_header": other,
                    "after_header": f"{other} (set aside)",
                    "before": f"{other}\n",
                    "after": "",
                }
            )
    for name, state in wanted_generated.items():
        if netplan.owner_of(name) in ids or (name.endswith("10-globally-managed-devices.conf")):
            after[name] = state
    for name in seen["run"]:
        if netplan.owner_of(name) in ids and name not in wanted_generated:
            after[name] = None
    if netplan.SHARED_RULES in wanted_generated:
        rules = wanted_generated[netplan.SHARED_RULES]
        merged = netplan.merge_rules(_text(seen["run"].get(netplan.SHARED_RULES)), rules["content"], ids)
        after[netplan.SHARED_RULES] = {**rules, "content": merged}
    decision.netdevs = sorted(name for name in ids if name in live)
    decision.expect = [{key: link[key] for key in ("netdev", "address", "mtu")} for link in links]
    decision.reset_mtu = _given_mtu(seen["generated"], set(decision.netdevs) - {link["netdev"] for link in links})
    planned = {(link["netdev"], link["address"]) for link in links}
    decision.drop = [
        {"netdev": name, "address": address}
        for name in decision.netdevs
        for address, item in live[name]["addresses"].items()
        if item["family"] == "inet" and item["scope"] == "global" and (name, address) not in planned
    ]
    decision.changed = decision.needs_apply = True
    before_live = [problem for found in problems.values() for problem in found]
    if before_live:
        decision.diff.append(
            {
                "before_header": "live links",
                "after_header": "live links",
                "before": "\n".join(before_live) + "\n",
                "after": "\n".join(
                    f"{link['netdev']} has {link['address']}" + (f" and MTU {link['mtu']}" if link["mtu"] else "")
                    for link in links
                )
                + "\n",
            }
        )
    return decision


def _given_mtu(generated: dict[str, job.FileState], netdevs: set[str]) -> list[str]:
    """NICs of this set that generated files give an MTU (``MTUBytes=`` of networkd, ``mtu=`` of NetworkManager)."""
    setting = re.compile(r"(?im)^mtu(bytes)?=")
    found: set[str] = set()
    for path, state in generated.items():
        if setting.search(state["content"]):
            owner = netplan.owner_of(path)
            found |= {owner} if owner else netplan.nics_of(path, state["content"])
    return sorted(found & netdevs)


def _returnable(
    path: str, aside: dict[str, list[str]], seen: dict[str, Any], management: str
) -> dict[str, job.FileState]:
    """Of what was set aside (original → copies): the originals that can stand where they stood.

    Only what is about fabric NICs alone that nobody else configures by now, so that it changes nothing but what our
    file changed; and of several copies of one file nobody can tell which is meant.
    """
    free = set(seen["live"]) - {management} - {netplan.owner_of(name) for name in seen["others"]}
    sources = dict(seen["sources"])

    def fits(original: str, state: job.FileState) -> bool:
        if original != path and os.path.lexists(original):
            return False
        nics = netplan.nics_of(original, state["content"])
        if not nics or not nics <= free:
            return False
        if original.endswith(".yaml"):
            netplan.generate({**sources, original: state["content"]})
            sources[original] = state["content"]
        return True

    back: dict[str, job.FileState] = {}
    for original, copies in aside.items():
        state = job.read_state(copies[0])
        if state is not None and len(copies) == 1:
            with contextlib.suppress(netplan.NetplanError):
                if fits(original, state):
                    back[original] = state
    return back


def decide_absent(params: dict[str, Any], management: str) -> Decision:
    """What taking our file away means: what it was put in place of comes back."""
    path = params["path"]
    decision = Decision()
    current = job.read_state(path)
    if current is None:
        return decision
    if not netplan.is_ours(current["content"]):
        decision.adopted = True
        return decision
    seen = netplan.inspect(path, [])
    decision.findings = seen["findings"]
    stopped = blocking(seen["findings"], params["accept"], False)
    if stopped:
        raise ChangeError(explain(stopped))
    aside = netplan.set_aside(path)
    back = _returnable(path, aside, seen, management)
    decision.restored = sorted(back)
    decision.kept = [copy for original, copies in aside.items() if original not in back for copy in copies]
    yaml = {name: state["content"] for name, state in back.items() if name.endswith(".yaml")}
    generated = netplan.generate({**seen["sources"], **yaml}) if yaml else {}
    ids = seen["previous"].union(*(netplan.nics_of(name, state["content"]) for name, state in back.items()))
    live = seen["live"]
    if management in ids:
        raise ChangeError(f"{path} configures {management}, by which this host is reached; come in over another NIC")
    # what the network services read of what comes back
    theirs = {name: state for name, state in generated.items() if netplan.owner_of(name) in ids}
    theirs.update((name, state) for name, state in back.items() if name not in yaml)
    decision.after[path] = None
    for name in seen["run"]:
        if netplan.owner_of(name) in ids:
            decision.after[name] = None
    decision.after.update((aside[original][0], None) for original in back)
    decision.after.update({**back, **theirs})
    rules, new_rules = seen["run"].get(netplan.SHARED_RULES), generated.get(netplan.SHARED_RULES)
    if rules or new_rules:
        merged = netplan.merge_rules(_text(rules), _text(new_rules), ids)
        decision.after[netplan.SHARED_RULES] = {**(rules or new_rules or {}), "content": merged} if merged else None
    given = netplan.configured_addresses(
        [state["content"] for name, state in seen["generated"].items() if netplan.owner_of(name) in ids]
    ) - netplan.configured_addresses([state["content"] for state in theirs.values()])
    decision.netdevs = sorted(name for name in ids if name in live)
    decision.drop = [
        {"netdev": name, "address": address}
        for name in decision.netdevs
        for address in live[name]["addresses"]
        if address in given
    ]
    without = set(decision.netdevs) - set(_given_mtu(theirs, set(decision.netdevs)))
    decision.reset_mtu = _given_mtu(seen["generated"], without)
    decision.changed = decision.needs_apply = True
    decision.diff.append(
        {
            "before_header": path,
            "after_header": path,
            "before": current["content"],
            "after": "",
        }
    )
    decision.diff += [
        # by name only: a profile may hold secrets
        {"before_header": f"{name} (set aside)", "after_header": name, "before": "", "after": f"{name}\n"}
        for name in decision.restored
    ]
    return decision


def difference(params: dict[str, Any]) -> str:
    """What is not as the arguments of the module ``netplan_apply`` want it, in a few words; nothing is written."""
    if armed():
        return "an unconfirmed network change is armed"
    if params["state"] == "present":
        management = management_netdev(params["management_address"], job.live_links(), job.live_routes())
        if decide_present(params, management).changed:
            return "netplan"
    if (
        params["environment_path"]
        and decide_environment(params["environment_path"], params["environment_variables"])[0]
    ):
        return str(params["environment_path"])
    return "; ".join(problem for link in netplan.verify(params["links"]) for problem in link["problems"])


def management_netdev(address: str, live: dict[str, dict[str, Any]], routes: list[str]) -> str:
    """The NIC a person or the controller comes in by: that of the address, of this ssh connection, of the way out."""
    owners = {item.partition("/")[0]: name for name, link in live.items() for item in link["addresses"]}
    address = address.partition("/")[0]
    if address in owners:
        return owners[address]
    # [client, port, server, port]: a host without a default route is reached all the same
    reached, _sign, zone = (ssh.connection() or ["", "", "", ""])[2].partition("%")
    if zone in live or reached in owners:
        return zone if zone in live else owners[reached]
    for route in routes:
        words = route.split()
        if "default" in words and "dev" in words:
            return words[words.index("dev") + 1]
    return ""


# --- arming, confirming -----------------------------------------------------------------------------------------------


def _systemd_run(unit: str, options: list[str], command: list[str], limit: float = 20) -> None:
    job.run(["systemctl", "reset-failed", f"{unit}.service", f"{unit}.timer"], 10)
    rc, out, err = job.run(["systemd-run", "--quiet", "--collect", f"--unit={unit}", *options, *command], limit)
    if rc:
        raise ChangeError(f"systemd-run {unit} failed: {(err or out).strip() or rc}")


def _python() -> str:
    return sys.executable or "/usr/bin/python3"


def armed(folder: str = STATE) -> bool:
    """Whether a change waits for its confirmation."""
    return os.path.exists(os.path.join(folder, "plan.json"))


def roll_back_now(reason: str, folder: str = STATE) -> dict[str, Any]:
    """Have systemd take the armed change back and wait for it; the ssh session may die meanwhile."""
    _systemd_run(NOW_UNIT, ["--wait"], [_python(), os.path.join(folder, "job.py"), "rollback", folder, reason], 60)
    return job.read_json(os.path.join(folder, "outcome.json")) or {"result": "unknown", "reason": "", "steps": []}


def clear_leftovers(folder: str = STATE) -> str:
    """Take back what a run that died left armed, and read what a rollback reported; a warning or nothing."""
    if not os.path.isdir(folder):
        return ""
    outcome = job.read_json(os.path.join(folder, "outcome.json")) or {}
    if armed(folder):
        outcome = roll_back_now("a later run found this change unconfirmed", folder)
        if armed(folder):
            raise ChangeError(f"an unconfirmed change could not be taken back; see journalctl -u {NOW_UNIT}")
    tidy(folder)
    if outcome.get("result") == "rolled_back":
        return f"an earlier network change was taken back on this host: {outcome.get('reason', '')}"
    return ""


def tidy(folder: str = STATE) -> None:
    """Remove the state folder, except copies of other people's files that a rollback replaced."""
    kept = [name for name in os.listdir(folder) if name.startswith("replaced-")] if os.path.isdir(folder) else []
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for name in os.listdir(folder):
        if name not in kept:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))


def arm_and_start(decision: Decision, params: dict[str, Any], management: str, folder: str = STATE) -> None:
    """Arm the way back, see that it is armed, then start the change in a unit of its own."""
    token, timeout = params["token"], params["rollback_timeout"]
    os.makedirs(folder, 0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    before = {path: job.read_state(path) for path in decision.after}
    before.update(job.generated_files())
    plan = {
        "token": token,
        "armed_at": time.time(),
        "timeout": timeout,
        "path": params["path"],
        "netdevs": decision.netdevs,
        "before": before,
        "after": decision.after,
        "expect": decision.expect,
        "drop": decision.drop,
        "reset_mtu": decision.reset_mtu,
        "live": job.live_links(),
        "routes": job.live_routes(),
        "management": management,
        "others": {path: job.read_state(path) for path in netplan.source_files() if path not in decision.after},
    }
    script = os.path.join(folder, "job.py")
    source = python_inspect.getsource(job)
    for path, content in (
        (script, source),
        (job.BOOT_UNIT, _BOOT_UNIT.format(marker=netplan.MARKER, state=folder, python=_python())),
    ):
        job.write_state(path, {"content": content, "mode": 0o644, "uid": 0, "gid": 0})
    job.write_json(os.path.join(folder, "plan.json"), plan)
    try:
        os.makedirs(os.path.dirname(job.BOOT_LINK), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink(job.BOOT_UNIT, job.BOOT_LINK)
        _systemd_run(
            job.TIMER,
            [f"--on-active={timeout}", "--timer-property=AccuracySec=500ms"],
            [_python(), script, "rollback", folder],
        )
        if not job.unit_active(f"{job.TIMER}.timer"):
            raise ChangeError("the rollback timer did not start; nothing was changed")
        _systemd_run(APPLY_UNIT, ["--no-block"], [_python(), script, "apply", folder])
    except ChangeError:
        job.finish(folder)
        tidy(folder)
        raise


def confirm(token: str, wait: float = 40.0, folder: str = STATE, hold: bool = False) -> dict[str, Any]:
    """Over a new connection: is the change live and the way in whole?  Then disarm, else take it back.

    With ``hold`` a sound change stays armed: it is kept only once all hosts of the play have one.
    """
    end = time.monotonic() + wait
    outcome: dict[str, Any] | None = None
    while time.monotonic() < end:
        outcome = job.read_json(os.path.join(folder, "outcome.json"))
        if outcome and outcome.get("token") == token:
            break
        outcome = None
        if not armed(folder):
            return {"status": "unknown", "reason": "no change with this token is armed on the host", "steps": []}
        time.sleep(0.1)
    if outcome is None:
        outcome = roll_back_now(f"the change was not finished within {wait:g} s", folder)
    if outcome["result"] == "applied":
        with job.locked(folder):
            plan = job.read_json(os.path.join(folder, "plan.json"))
            problems: list[str] = []
            if plan:
                problems = job.management_problems(plan)
                # they were as planned once; somebody or something may have set them back meanwhile
                problems += job.expectation_problems(plan["expect"], job.live_links())
                problems += [f"{path} was changed by someone else meanwhile" for path in job.changed_since(plan)]
                if not problems and hold:
                    return {"status": "held", "reason": "", "steps": outcome.get("steps", [])}
                if not problems:
                    job.finish(folder)
        if plan is None:  # the timer was faster
            outcome = job.read_json(os.path.join(folder, "outcome.json")) or outcome
        elif problems:
            outcome = roll_back_now("; ".join(problems), folder)
    steps, reason = outcome.get("steps", []), outcome.get("reason", "")
    if armed(folder):
        return {"status": "failed", "reason": f"the change could not be taken back: {reason}", "steps": steps}
    tidy(folder)
    return {
        "status": "confirmed" if outcome["result"] == "applied" else "rolled_back",
        "reason": reason,
        "steps": steps,
    }


def take_back(token: str, reason: str, folder: str = STATE) -> dict[str, Any]:
    """Take a held change back now instead of when its time is up, since another host's change failed."""
    plan = job.read_json(os.path.join(folder, "plan.json"))
    outcome = job.read_json(os.path.join(folder, "outcome.json")) or {}
    if plan and plan.get("token") == token:
        outcome = roll_back_now(reason, folder)
        if armed(folder):
            return {"status": "failed", "reason": f"it could not be taken back: {reason}", "steps": outcome["steps"]}
    elif plan or outcome.get("token") != token:
        return {"status": "unknown", "reason": "no change with this token is armed on the host", "steps": []}
    tidy(folder)
    return {"status": "rolled_back", "reason": outcome.get("reason", ""), "steps": outcome.get("steps", [])}
