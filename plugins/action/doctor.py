# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``doctor``: documented in plugins/modules/doctor.py."""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.mask import mask
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import shape
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import ClusterAction
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import case as _case
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import diagnosis
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks import CHECKS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.logs import load_rules, read_logs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import inventory
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import Declared
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric as _fabric
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import (
    ClusterError,
    management_problems,
    plan_cluster,
    plan_parts,
    stand_in,
    stand_in_cidrs,
    told_cidrs,
    with_cidr,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import links_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.foreign_yaml import load_foreign
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import results

_NAMES = (
    *inventory.CLUSTER_WIDE,
    *("ansible_host", "ansible_user", "fabric_lan_nic", "fabric_overrides", "fabric_speed", "ray_node_num_gpus"),
    "vllm_serve_acknowledged",
)


def _read_yaml(text: str) -> Any:
    """None for what is no YAML, or stands for more than it is long: a few aliases make any amount of it."""
    try:
        found = load_foreign(text)
        shape.bounded(found)
    except (yaml.YAMLError, ValueError, RecursionError, shape.Misshapen):
        return None
    return found


def _stand_in(cidr: str, kind: str) -> dict[str, Any]:
    return stand_in(kind, "unknown0", cidr.partition("/")[0], cidr)


class ActionModule(ClusterAction):
    ARGUMENTS = {
        "stage": {"type": "str", "choices": ["plan", "judge"], "default": "judge"},
        "evidence": {"type": "str", "default": ""},
        "logs": {"type": "str", "default": ""},
        "json": {"type": "str", "default": ""},
        "fail_on": {"type": "str", "choices": ["never", "error", "warning"], "default": "never"},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        given, task_vars = arguments, self.vars
        groups = {name: list(hosts) for name, hosts in (task_vars.get("groups") or {}).items()}
        hosts = inventory.cluster_hosts(groups)
        hostvars = {host: self._known(Declared(task_vars["hostvars"][host], strict=False)) for host in hosts}
        if given["stage"] == "plan":
            return {"changed": False, "links": self._links(groups, hosts, hostvars), "key": secrets.token_hex(16)}
        if not given["logs"] and not given["evidence"]:
            raise AnsibleActionFail(
                "evidence: name the variable in which each host's evidence_info was registered, or give logs"
            )
        begun = time.monotonic()
        try:
            rules = load_rules(CHECKS)
        except (diagnosis.RuleError, OSError) as error:
            raise AnsibleActionFail(f"the doctor's rules cannot be used: {error}") from None
        if given["logs"]:
            case, logs, states, notes = self._from_logs(given["logs"], hosts)
        else:
            outcomes = {
                host: task_vars["hostvars"][host].get(given["evidence"])
                for host in hosts
                if host in (task_vars.get("ansible_play_hosts_all") or hosts)
            }
            case, logs, states, notes = self._live(groups, hosts, hostvars, outcomes)
        for log in logs:
            case.serves += _case.log_arguments(log) if not given["logs"] or log.text else []
        profile = self._profile(case, hosts, hostvars)
        findings, more = self._diagnose(rules, case, logs, profile)
        public = [finding.public() for finding in findings]
        doctor = {
            "schema": diagnosis.SCHEMA,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "mode": "logs" if given["logs"] else "live",
            "hosts": states,
            "summary": {
                "errors": sum(item["severity"] == diagnosis.ERROR for item in public),
                "warnings": sum(item["severity"] == diagnosis.WARNING for item in public),
                "rules": len(rules),
                "hosts": len(case.evidence),
                "lines": sum(log.text.count("\n") for log in logs),
                "seconds": round(time.monotonic() - begun, 2),
            },
            "findings": public,
            "notes": [*notes, *more],
        }
        for line in diagnosis.render(public, doctor["notes"], doctor["summary"]):
            self.tell(f"  {line}")
        if given["json"]:
            results.save(given["json"], doctor, "doctor_json")
        result = {"changed": False, "doctor": doctor, "msg": self._sentence(doctor)}
        bad = doctor["summary"]["errors"] + (doctor["summary"]["warnings"] if given["fail_on"] == "warning" else 0)
        if given["fail_on"] != "never" and bad:
            result["failed"] = True
        return result

    @staticmethod
    def _diagnose(
        rules: Sequence[diagnosis.Rule], case: _case.Case, logs: Sequence[diagnosis.Log], profile: str
    ) -> tuple[list[diagnosis.Diagnosis], list[str]]:
        """Hosts and their network are judged together, what serves by the group that serves together."""
        planned = case.fabric is not None
        if not case.parts:
            return diagnosis.diagnose(rules, CHECKS, case, logs, profile, planned)
        shared = [rule for rule in rules if rule.area in ("host", "network")]
        findings, notes = diagnosis.diagnose(shared, CHECKS, case, logs, profile, planned)
        for name, hosts, cluster in case.parts:
            serves = [serve for serve in case.serves if serve.host in hosts]
            part = dataclasses.replace(case, group=name, hosts=hosts, cluster=cluster, serves=serves)
            of_part, more = diagnosis.diagnose(
                [rule for rule in rules if rule not in shared],
                CHECKS,
                part,
                [log for log in logs if log.host in hosts],
                profile,
                planned,
            )
            findings, notes = [*findings, *of_part], [*notes, *more]
        # what a host or its network has brings faults along in the group that serves on it
        findings = diagnosis.fold(findings, [hosts for _name, hosts, _cluster in case.parts])
        findings.sort(key=lambda finding: diagnosis.SEVERITIES.index(finding.rule.severity))
        return findings, list(dict.fromkeys(notes))

    @staticmethod
    def _known(variables: Mapping[str, Any]) -> dict[str, Any]:
        return {name: variables[name] for name in _NAMES if name in variables}

    @staticmethod
    def _sentence(doctor: Mapping[str, Any]) -> str:
        summary = doctor["summary"]
        names = ", ".join(dict.fromkeys(item["rule"] for item in doctor["findings"]))
        return f"{summary['errors']} errors, {summary['warnings']} warnings" + (f": {names}" if names else "")

    @staticmethod
    def _profile(case: _case.Case, hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> str:
        if case.cluster:
            return str(case.cluster["profile"])
        topology = str(hostvars[hosts[0]].get("fabric_topology", "")) if hosts else ""
        return {"": "", "lan": "tcp", "line": "tcp"}.get(topology, "roce")

    @staticmethod
    def _kinds(groups: Mapping[str, Sequence[str]], hosts: Sequence[str]) -> dict[str, str]:
        asserted = inventory.asserted_kinds(groups)
        return {host: asserted.get(host, "spark") for host in hosts}

    def _links(self, groups, hosts, hostvars) -> dict[str, list[dict[str, Any]]]:
        """Who should reach whom, from the inventory alone; nothing where it is not sound, which is found out later."""
        kinds = self._kinds(groups, hosts)
        try:
            cidrs = stand_in_cidrs(hosts, hostvars, {})
            nodes = {host: _stand_in(cidrs[host], kinds[host]) for host in hosts}
            _cluster, fabric, _warnings = plan_cluster(groups, hosts, hostvars, nodes)
        except (ClusterError, KeyError, IndexError):
            return {host: [] for host in hosts}
        managed = {host: entry for host, entry in fabric.items() if entry["addressing"] == "managed"}
        return {host: links_of(managed, host) if host in managed else [] for host in hosts}

    @staticmethod
    def _from_logs(path, hosts):
        logs, notes = read_logs(os.path.expanduser(path), hosts)
        return _case.Case(hosts=[], logs_only=True), logs, {}, notes

    def _live(self, groups, hosts, hostvars, outcomes):
        acknowledged = {host: hostvars[host].get("vllm_serve_acknowledged") or () for host in hosts}
        case = _case.Case(hosts=list(hosts), acknowledged=acknowledged)
        logs: list[diagnosis.Log] = []
        notes: list[str] = []
        states: dict[str, dict[str, Any]] = {}
        for host in hosts:
            outcome = outcomes.get(host)
            if outcome is None:
                if outcomes:
                    notes.append(f"{host} was not asked (--limit)")
                states[host] = {"state": "left out", "reason": "", "seconds": 0.0, "errors": []}
                continue
            evidence = outcome.get("evidence")
            if not isinstance(evidence, Mapping) or not evidence.get("started"):
                reason = self._reason(outcome)
                away = outcome.get("unreachable") or outcome.get("away")
                (case.unreachable if away else case.unreadable)[host] = reason
                given = hostvars[host]
                address, user = str(given.get("ansible_host", host)), str(given.get("ansible_user", ""))
                why = inventory.explain_contact(host, address, user, reason)
                if why.id == "contact":
                    what, fix = (f"{text[0].upper()}{text[1:]}." for text in (why.what, why.fix))
                    case.contact[host] = (what, fix)
                state = "unreachable" if away else "unreadable"
                states[host] = {"state": state, "reason": reason[:500], "seconds": 0.0, "errors": []}
                continue
            case.evidence[host] = evidence
            states[host] = {
                "state": "read",
                "reason": "",
                "seconds": evidence.get("seconds", 0.0),
                "errors": list(evidence.get("errors") or ()),
            }
            notes += [f"{host}: {error}" for error in evidence.get("errors") or ()]
            case.clocks[host] = (
                float(evidence["ended"]) - float(outcome["after"]),
                float(evidence["started"]) - float(outcome["before"]),
            )
            case.serves += _case.serve_arguments(host, evidence, _read_yaml)
            logs += [diagnosis.Log(host, item["name"], item["text"]) for item in evidence.get("logs") or ()]
        self._plan(case, groups, hosts, hostvars)
        return case, _case.without_former_jobs(case, logs), states, notes

    @staticmethod
    def _reason(outcome: Mapping[str, Any]) -> str:
        for key in ("msg", "module_stderr", "module_stdout", "exception"):
            if outcome.get(key):
                return mask(str(outcome[key]))
        return "no answer"

    def _plan(self, case, groups, hosts, hostvars) -> None:
        if not hosts:
            return
        kinds = self._kinds(groups, hosts)
        answered = {host: case.node(host) for host in hosts if case.node(host).get("management")}
        told = {host: node for host, node in answered.items() if node["management"]["netdev"]}
        known, lost = told_cidrs(hostvars, told)
        cidrs = stand_in_cidrs(hosts, hostvars, known)
        nodes = {}
        for host in hosts:
            if host not in told:
                nodes[host] = _stand_in(cidrs[host], kinds[host])
            else:
                nodes[host] = with_cidr(told[host], cidrs[host]) if host in lost else told[host]
        # these hosts' own trouble is no reason to judge the others without a plan
        case.plan_error = "\n".join(map(str, [*management_problems(answered), *lost.values()]))
        try:
            case.cluster, fabric, _warnings = plan_cluster(groups, hosts, hostvars, nodes)
            if names := inventory.named_groups(hostvars, hosts):
                plans = plan_parts(inventory.parts(groups, names), hostvars, nodes, fabric)
                case.parts = [(name, plan["hosts"], plan) for name, plan in plans.items()]
        except ClusterError as error:
            case.plan_error = str(error)
            return
        except (KeyError, IndexError, TypeError) as error:
            case.plan_error = f"the inventory lacks {error}"
            return
        devices = {
            host: {link["netdev"]: link["device"] for link in (evidence.get("rdma") or {}).get("links") or ()}
            for host, evidence in case.evidence.items()
        }
        _fabric.adopt_devices(fabric, devices)
        made_up = {cidrs[host].partition("/")[0] for host in hosts if host not in known} - {
            str(hostvars[host].get("ansible_host", host)) for host in hosts
        }
        for entry in fabric.values():
            # nothing on a host can be held against these
            entry["env"] = {
                key: value for key, value in entry["env"].items() if str(value).partition(":")[0] not in made_up
            }
            if entry["control_address"] in made_up:
                entry["control_address"] = ""
        case.fabric = fabric
