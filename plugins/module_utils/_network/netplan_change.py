# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start a network change on the host under a timed rollback, then confirm it or roll it back.

The order is what keeps a host reachable: everything is decided first (:mod:`netplan_decision`), then the state folder
and a systemd timer that takes the change back are set up, only then does a unit of its own (not the ssh session) make
the change, and only a later connection disarms the timer.
"""

from __future__ import annotations

import contextlib
import inspect as python_inspect
import os
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.arguments import checked
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import command, deadline
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    link_state,
    netplan,
    netplan_decision,
    netplan_files,
    netplan_generator,
    netplan_live,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.netplan_decision import (
    ChangeError,
    NetplanDecision,
)

STATE = "/var/lib/sparkthor-netplan"
APPLY_UNIT = "sparkthor-netplan-apply"
NOW_UNIT = "sparkthor-netplan-rollback-now"
_BOOT_UNIT = """\
{marker}
[Unit]
Description=Roll back an unconfirmed network change before the network starts
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
#: in the state folder: what systemd starts, and the files that it imports
_PACKAGE = "sparkthor_netplan"
_START = f"import sys\n\nfrom {_PACKAGE}._network.netplan_job import main\n\nraise SystemExit(main(sys.argv))\n"
PEER = {
    "host": {"type": "str", "default": ""},
    "address": {"type": "str", "required": True},
    "mtu": {"type": "int", "default": 0},
}
LINK = {
    "netdev": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "mtu": {"type": "int", "default": 0},
    "shared": {"type": "bool", "default": False},
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
    "floating": {"type": "list", "elements": "str", "default": []},
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


def difference(arguments: Mapping[str, Any]) -> str:
    """What is not as the arguments of the module ``netplan_apply`` want it, in a few words; nothing is written."""
    params = checked(ARGUMENTS, arguments)
    if armed():
        return "an unconfirmed network change is armed"
    if params["state"] == "present":
        management = netplan_decision.management_netdev(
            params["management_address"], job.live_links(), job.live_routes()
        )
        if netplan_decision.decide_present(params, management).changed:
            return "netplan"
    if (
        params["environment_path"]
        and netplan_decision.decide_environment(params["environment_path"], params["environment_variables"])[0]
    ):
        return str(params["environment_path"])
    return "; ".join(problem for link in link_state.verify(params["links"]) for problem in link["problems"])


#: properties of a unit that is started again until it has done its work
RETRIED = ("--property=Restart=on-failure", "--property=RestartSec=3s")


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
    _systemd_run(
        NOW_UNIT,
        ["--wait"],
        [_python(), os.path.join(folder, "job.py"), "rollback", folder, reason],
        job.LOCK_LIMIT + 60,
    )
    found = job.read_netplan_json(os.path.join(folder, "outcome.json")) or {}
    # a host that could not write down what it did, as on a full disk, has said nothing since the change was made
    return (
        found
        if found.get("result") in ("rolled_back", "failed")
        else {"result": "unknown", "reason": reason, "steps": []}
    )


def clear_leftovers(folder: str = STATE) -> str:
    """Roll back what a run that died left armed, and read what a rollback reported; a warning or nothing."""
    if not os.path.isdir(folder):
        return ""
    outcome = job.read_netplan_json(os.path.join(folder, "outcome.json")) or {}
    if armed(folder):
        outcome = roll_back_now("a later run found this change unconfirmed", folder)
        if armed(folder):
            raise ChangeError(f"an unconfirmed change could not be rolled back; see journalctl -u {NOW_UNIT}")
    tidy(folder)
    if outcome.get("result") == "rolled_back":
        return f"an earlier network change was rolled back on this host: {outcome.get('reason', '')}"
    return ""


def program() -> dict[str, str]:
    """What makes the change and takes it back, as it lies in the state folder: text by name."""
    files = {
        f"{_PACKAGE}/{'/'.join(module.__name__.split('.')[-2:])}.py": module
        for module in (command, deadline, job, netplan_files, netplan_live)
    }
    return {"job.py": _START, **{name: python_inspect.getsource(module) for name, module in files.items()}}


def tidy(folder: str = STATE) -> None:
    """Remove the state folder, except copies of other people's files that a rollback replaced."""
    # without its files it would be started again for ever
    job.run(["systemctl", "stop", f"{job.TIMER}.service"], 10)
    kept = [name for name in os.listdir(folder) if name.startswith("replaced-")] if os.path.isdir(folder) else []
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        elif name not in kept:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _lasting(live: dict[str, dict[str, Any]], floating: list[str]) -> dict[str, dict[str, Any]]:
    """The links without addresses that another host may have by the time of a rollback."""
    return {
        name: {
            **link,
            "addresses": {
                address: item
                for address, item in link["addresses"].items()
                if address.partition("/")[0] not in floating
            },
        }
        for name, link in live.items()
    }


def arm_and_start(decision: NetplanDecision, params: dict[str, Any], management: str, folder: str = STATE) -> None:
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
        "live": _lasting(job.live_links(), decision.floating),
        "floating": decision.floating,
        "routes": job.live_routes(),
        "profiles": job.active_profiles(),
        "management": management,
        "others": {
            path: job.read_state(path) for path in netplan_generator.source_files() if path not in decision.after
        },
    }
    script = os.path.join(folder, "job.py")
    unit = _BOOT_UNIT.format(marker=netplan.MARKER, state=folder, python=_python())
    files = {os.path.join(folder, name): text for name, text in program().items()}
    for path, content in (*files.items(), (job.BOOT_UNIT, unit)):
        job.write_state(path, {"content": content, "mode": 0o644, "uid": 0, "gid": 0})
    job.write_json(os.path.join(folder, "plan.json"), plan)
    try:
        os.makedirs(os.path.dirname(job.BOOT_LINK), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink(job.BOOT_UNIT, job.BOOT_LINK)
        _systemd_run(
            job.TIMER,
            # the timer comes once, and what it starts may be killed: it is started again until nothing is left to do
            [f"--on-active={timeout}", "--timer-property=AccuracySec=500ms", *RETRIED],
            [_python(), script, "rollback", folder],
        )
        if not job.unit_active(f"{job.TIMER}.timer"):
            raise ChangeError("the rollback timer did not start, so the change was not started")
        _systemd_run(APPLY_UNIT, ["--no-block"], [_python(), script, "apply", folder])
    except ChangeError:
        job.finish(folder)
        tidy(folder)
        raise


def confirm(token: str, wait: float = 40.0, folder: str = STATE, hold: bool = False) -> dict[str, Any]:
    """Over a new connection: is the change live and the way in whole?  Then disarm, else take it back.

    With ``hold`` a sound change stays armed: it is kept only once all hosts of the play have one.
    """

    def told() -> dict[str, Any] | None:
        found = job.read_netplan_json(os.path.join(folder, "outcome.json"))
        if found and found.get("token") == token:
            return found
        return {} if armed(folder) else None

    outcome = deadline.ask_until(told, lambda found: found != {}, wait, 0.1)
    if outcome is None:
        return {"status": "unknown", "reason": "no change with this token is armed on the host", "steps": []}
    if not outcome:
        outcome = roll_back_now(f"the change was not finished within {wait:g} s", folder)
    if outcome["result"] == "applied":
        with job.locked(folder):
            plan = job.read_netplan_json(os.path.join(folder, "plan.json"))
            problems: list[str] = []
            if plan:
                problems = job.management_path_problems(plan)
                # they were as planned once; somebody or something may have set them back meanwhile
                problems += job.expectation_problems(plan["expect"], job.live_links())
                problems += [f"{path} was changed by someone else meanwhile" for path in job.changed_since(plan)]
                if not problems and hold:
                    return {"status": "held", "reason": "", "steps": outcome.get("steps", [])}
                if not problems:
                    job.finish(folder)
        if plan is None:  # the timer was faster
            outcome = job.read_netplan_json(os.path.join(folder, "outcome.json")) or {}
            outcome = {"result": "rolled_back", "reason": "its time was up", "steps": [], **outcome}
        elif problems:
            outcome = roll_back_now("; ".join(problems), folder)
    steps, reason = outcome.get("steps", []), outcome.get("reason", "")
    if armed(folder):
        return {"status": "failed", "reason": f"the change could not be rolled back: {reason}", "steps": steps}
    tidy(folder)
    return {
        "status": "confirmed" if outcome["result"] == "applied" else "rolled_back",
        "reason": reason,
        "steps": steps,
    }


def take_back(token: str, reason: str, folder: str = STATE) -> dict[str, Any]:
    """Take a held change back now instead of when its time is up, since another host's change failed."""
    plan = job.read_netplan_json(os.path.join(folder, "plan.json"))
    outcome = job.read_netplan_json(os.path.join(folder, "outcome.json")) or {}
    if plan and plan.get("token") == token:
        outcome = roll_back_now(reason, folder)
        if armed(folder):
            return {"status": "failed", "reason": f"it could not be rolled back: {reason}", "steps": outcome["steps"]}
    elif plan or outcome.get("token") != token:
        return {"status": "unknown", "reason": "no change with this token is armed on the host", "steps": []}
    tidy(folder)
    return {"status": "rolled_back", "reason": outcome.get("reason", ""), "steps": outcome.get("steps", [])}
