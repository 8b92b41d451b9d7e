# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of all hosts beside the plan: one document.  Runs on the controller; pure.

A host that did not answer is planned with what the inventory says of it, so that the links of the others still have
their peers.  Nothing here raises over what hosts said.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import boots, rdma_counters
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    answers,
    host_versions,
    last_checks,
    limits,
    pcie_errors,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.places import Places
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import inventory, role_specs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    cabling,
    fabric_speed,
    front,
    host_gpu,
    host_name,
    nic_names,
    virtual_address,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import (
    ClusterError,
    plan_cluster,
    stand_in,
    stand_in_cidrs,
    told_cidrs,
    with_cidr,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import units

VERSION = 1
GIB = 1024**3
#: a watchdog's report that is older says nothing about now
FRESH_SECONDS = 30.0


def _stand_in(variables: Mapping[str, Any], kind: str, cidr: str) -> dict[str, Any]:
    """Facts of a host that did not answer, as far as the inventory tells."""
    netdev = str(variables.get("fabric_lan_nic") or ("enP2p1s0" if kind == "thor" else "enP7s7"))
    return stand_in(kind, netdev, cidr.partition("/")[0], cidr)


def _told(facts_by_host: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Facts of the hosts that said by which NIC they were asked."""
    nodes = {host: facts["node"] for host, facts in facts_by_host.items() if facts.get("node")}
    return {host: node for host, node in nodes.items() if node["management"]["netdev"]}


def plan(
    groups: Mapping[str, Sequence[str]],
    hosts: Sequence[str],
    hostvars: Mapping[str, Mapping[str, Any]],
    facts_by_host: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]:
    """``(cluster, fabric, nodes, error)``, nodes by host; an empty fabric with the reason where no plan can be made."""
    kinds = inventory.asserted_kinds(groups)
    told = _told(facts_by_host)
    known, lost = told_cidrs(hostvars, told)
    cidrs = stand_in_cidrs(hosts, hostvars, known)
    nodes: dict[str, Any] = {}
    for host in hosts:
        if host not in told:
            nodes[host] = _stand_in(hostvars[host], kinds.get(host, "spark"), cidrs[host])
        else:
            nodes[host] = with_cidr(told[host], cidrs[host]) if host in lost else told[host]
    topology = str(hostvars[hosts[0]].get("fabric_topology", ""))
    bare: dict[str, Any] = {"topology": topology, "head": hosts[0], "hosts": list(hosts)}
    try:
        cluster, fabric, _warnings = plan_cluster(groups, hosts, hostvars, nodes)
    except (ClusterError, KeyError, TypeError, ValueError) as error:
        return bare, {}, nodes, " ".join(str(error).split())
    return cluster, fabric, nodes, ""


def _public(found: Finding) -> dict[str, str]:
    """A problem as the document holds it."""
    return {"host": found.host, "text": found.what, "fix": found.fix}


def rate_of(interface: Mapping[str, Any], rdma: Mapping[str, Any]) -> float | None:
    """Gb/s of a port: the RDMA port's own word, else what Ethernet negotiated."""
    if rdma.get("rate"):
        return float(rdma["rate"])
    speed = str(interface.get("speed", ""))
    return int(speed) / 1000 if speed.isdigit() and int(speed) > 0 else None


def link_status(planned: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """One planned port as it is: state, rate, MTU, address, and what is wrong with it."""
    interfaces = {item["name"]: item for item in facts["node"]["interfaces"]}
    rdma = {item["netdev"]: item for item in (facts.get("rdma") or {}).get("links", [])}
    netdev = planned["netdev"]
    interface = interfaces.get(netdev)
    port = rdma.get(netdev, {})
    state: dict[str, Any] = {
        "netdev": netdev,
        "device": port.get("device") or planned.get("device", ""),
        "half": planned.get("half", 0),
        "cage": port.get("cage"),
        "peer": planned.get("peer", ""),
        "peer_netdev": planned.get("peer_netdev", ""),
        "address": planned.get("address", ""),
        "subnet": planned.get("subnet", ""),
        "planned_mtu": planned.get("mtu"),
        "state": "absent",
        "mtu": None,
        "rate_gbits": None,
        "port_state": port.get("port_state", ""),
        "gid_index": port.get("gid_index"),
        "counters": port.get("counters", {}),
        "problems": [],
    }
    wrong: list[list[str]] = state["problems"]
    if interface is None:
        if now := nic_names.now_called(netdev, interfaces.values()):
            wrong.append([*nic_names.renamed(netdev, now)])
        else:
            wrong.append([f"{netdev} does not exist", "plug the cable in (an uncabled ConnectX port may be absent)"])
        return state
    state["mtu"] = interface["mtu"]
    state["rate_gbits"] = rate_of(interface, port)
    state["state"] = "up" if interface["carrier"] else ("no carrier" if interface["up"] else "down")
    if state["state"] == "down":
        wrong.append([f"{netdev} is administratively down", f"ip link set {netdev} up, or run site.yml --tags network"])
    elif state["state"] == "no carrier":
        other = f"; its other end is {planned['peer']} {planned['peer_netdev']}" if planned.get("peer") else ""
        wrong.append([f"{netdev} has no carrier{other}", "check the cable at both ends"])
    addresses = [item["address"] for item in interface["addresses"]]
    if planned.get("address") and planned["address"] not in addresses:
        has = ", ".join(addresses) or "none"
        wrong.append(
            [f"{netdev} lacks its address {planned['address']} (has {has})", "run site.yml --tags roce_network"]
        )
    wanted = planned.get("mtu")
    if wanted and interface["mtu"] != int(wanted):
        wrong.append([f"{netdev} has MTU {interface['mtu']}, not {wanted}", "run site.yml --tags roce_network"])
    if port and state["state"] == "up" and port.get("port_state") not in ("", "ACTIVE"):
        wrong.append(
            [f"{port['device']} is {port['port_state']} although {netdev} is up", "reload mlx5_core or reboot"]
        )
    return state


def _control_address(planned: Mapping[str, Any], answered: bool) -> str:
    """By which address peers reach a host; nothing where it is only the stand-in's."""
    address = str(planned.get("control_address", ""))
    return address if answered or address != planned.get("management_address") else ""


def _firewall_problems(host: str, firewall: Mapping[str, Any], units: Mapping[str, Any]) -> list[Finding]:
    """What is loaded beside what should be; a change that waits for its controller is none."""
    state, reason = firewall.get("state"), firewall.get("reason", "")
    if state == "open":
        fix = "systemctl restart sparkthor-firewall there, or site.yml --tags firewall"
        return [Finding("firewall", f"the firewall is open: {reason}", fix, host)]
    if state == "unknown":
        return [Finding("firewall", f"the firewall cannot be read: {reason}", "nft list ruleset there", host)]
    if state == "closed" and units.get("sparkthor-firewall-watch", {}).get("active") != "active":
        fix = "systemctl restart sparkthor-firewall-watch there, or site.yml --tags firewall"
        return [Finding("firewall", "nobody watches over the firewall: a flush would leave it open", fix, host)]
    return []


def _room_problems(host: str, memory: Mapping[str, Any], disk: Mapping[str, Any]) -> list[Finding]:
    """Memory, disk and swap that are nearly used up."""
    problems = []
    if limits.memory_low(memory["total"], memory["available"]):
        free = memory["available"] / GIB
        problems.append(
            Finding(
                "memory",
                f"only {free:.1f} GiB of memory are left",
                "lower vllm_serve_args gpu-memory-utilization",
                host,
            )
        )
    if limits.disk_low(disk["total"], disk["free"]):
        problems.append(
            Finding("disk", f"disk nearly full: {disk['free'] / GIB:.1f} GiB left", "remove old models", host)
        )
    if memory["swap_used"] > limits.SWAPPED:
        used = memory["swap_used"] / GIB
        problems.append(
            Finding("swap", f"{used:.1f} GiB are swapped out", "something beside the model takes memory", host)
        )
    return problems


def _rate_problems(fabric: Mapping[str, Mapping[str, Any]], hosts: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Links that negotiated less than they are planned for; only RDMA links have a planned speed."""
    rates = {
        host: {
            link["netdev"]: link["rate_gbits"]
            for link in found["links"]
            if link["state"] == "up" and link["rate_gbits"]
        }
        for host, found in hosts.items()
        if found["kind"] == "spark" and (fabric.get(host) or {}).get("addressing") == "managed"
    }
    return [
        Finding("speed" if one.mixed else "rate", one.what, one.fix, ", ".join(one.hosts))
        for one in fabric_speed.slow(fabric, rates)
    ]


def _gpu_problems(facts_by_host: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """GPUs that do not answer, and those that heat, the power supply or something else slows down right now."""
    nodes = {host: facts["node"] for host, facts in facts_by_host.items()}
    wrong = {host: host_gpu.missing(node) for host, node in nodes.items()}
    problems = [Finding("gpu", what, fix, host) for host, (what, fix) in wrong.items() if what]
    held = host_gpu.held_back(
        {host: facts.get("gpus") or () for host, facts in facts_by_host.items()},
        {host: host_gpu.limit_mhz(node) for host, node in nodes.items()},
    )
    fix = "playbooks/doctor.yml says what to do (gpu-slowed)"
    return problems + [
        Finding("gpu", f"a GPU is slowed down: {'; '.join(seen)}", fix, host) for host, seen in held.items()
    ]


def _counted_problems(host: str, facts: Mapping[str, Any]) -> list[Finding]:
    """What the host's own counters and the kernel's log say, by the judges and the rules of the doctor."""
    fix = "playbooks/doctor.yml says what to do ({})"
    problems = [
        Finding("loss", f"the fabric loses packets: {what}", fix.format("fabric-loses"), host)
        for what in rdma_counters.told(facts.get("rdma_counters") or {})
    ]
    problems += [
        Finding("pcie", what, fix.format("pcie-errors"), host)
        for what in pcie_errors.told(facts.get("pcie_errors") or {})
    ]
    if kernel := str(facts.get("kernel") or ""):
        # most hosts have none, and the rules are many
        from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks import CHECKS
        from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import Log, scan
        from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.logs import load_rules

        rules = {rule.id: rule for rule in load_rules(CHECKS) if rule.kernel}
        for name, hits in scan(list(rules.values()), [Log(host, "kernel log", kernel)]).items():
            said = f"{rules[name].title}: {hits[0].evidence[-1]}"
            problems.append(Finding(name, said, fix.format(name), host))
    return problems


def _nccl_problems(
    facts_by_host: Mapping[str, Mapping[str, Any]], fabric: Mapping[str, Mapping[str, Any]]
) -> list[Finding]:
    """Settings of NCCL that nobody planned, by the doctor's check."""
    if not any(facts.get("processes") or facts.get("nccl") for facts in facts_by_host.values()):
        return []
    # this one check, not all: each module of a collection is compiled anew in every run
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import Case
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks_nccl import nccl_unplanned

    read = {
        host: {
            "nccl": facts.get("nccl") or {},
            "processes": facts.get("processes") or [],
            "files": {"fabric.env": "\n".join(f"{name}=" for name in facts["environment"])},
        }
        for host, facts in facts_by_host.items()
    }
    fix = "playbooks/doctor.yml says what to do (nccl-unplanned)"
    return [
        Finding("nccl", f"NCCL has settings that nobody planned: {hit.evidence[0]}", fix, hit.host)
        for hit in nccl_unplanned(Case(hosts=list(read), evidence=dict(read), fabric=fabric))
    ]


def _silent(
    host: str, address: str, variables: Mapping[str, Any], outcome: Mapping[str, Any]
) -> tuple[str, list[Finding]]:
    """Why there are no facts of a host: in one line, and as what there is to fix."""
    if not outcome:
        # a task that runs leaves one on every host that it asks
        return "not asked (--limit)", []
    message = str(outcome.get("msg") or outcome.get("module_stderr") or "no answer")
    why = inventory.explain_contact(host, address, str(variables.get("ansible_user", "")), message)
    said = f" [{why.source}]" if why.id == "no_contact" and why.source else ""
    return str(replace(why, host="")), [replace(why, fix=why.fix + said)]


def host_status(
    host: str,
    variables: Mapping[str, Any],
    outcome: Mapping[str, Any],
    facts: Mapping[str, Any] | None,
    planned: Mapping[str, Any],
    head: bool,
    paused: Set[str] = frozenset(),
) -> tuple[dict[str, Any], list[Finding]]:
    """``paused`` are units of the host that nobody expects to run."""
    state: dict[str, Any] = {
        "reachable": facts is not None,
        "role": "head" if head else "worker",
        "kind": planned.get("kind", ""),
        # of a host that did not answer the plan may hold an address that was made up
        "management": (facts and planned.get("management_address")) or str(variables.get("ansible_host", host)),
        "control_address": _control_address(planned, facts is not None),
        "links": [],
    }
    problems: list[Finding] = []
    if facts is None:
        state["error"], problems = _silent(host, state["management"], variables, outcome)
        return state, problems
    node, memory, disk = facts["node"], facts["memory"], facts["disk"]
    state.update(
        kind=node["kind"],
        product=node["product"],
        os=node["os"]["pretty"],
        kernel=node["kernel"],
        driver=node["driver"],
        python=node["python"]["version"],
        gpus=node["gpu_names"] or ([f"{node['gpus']} GPU"] if node["gpus"] else []),
        uptime_seconds=facts["uptime_seconds"],
        load=facts["load"],
        gpu_state=facts.get("gpus") or [],
        memory=memory,
        disk=disk,
        units=facts["units"],
        versions=facts["versions"],
        models=facts["models"],
        security_updates=facts.get("security_updates"),
        ray=facts["ray"],
        firewall=(facts.get("firewall") or {}).get("state", ""),
        previous_boot=boots.told(facts.get("previous_boot") or {}, facts["time"]),
        links=[link_status(link, facts) for link in planned.get("links", [])],
    )
    for link in state["links"]:
        problems += [Finding("link", text, fix, host) for text, fix in link["problems"]]
    lit = [link["netdev"] for link in state["links"] if link["state"] == "up"]
    if left := cabling.what_is_left(planned.get("links", []), lit):
        problems.append(Finding("link", left, "check the cable at both ends", host))
    problems += units.problems(host, facts["units"], paused)
    if text := host_name.told(node):
        problems.append(Finding("name", text, host_name.fix(node), host))
    problems += _firewall_problems(host, facts.get("firewall") or {}, facts["units"])
    problems += _room_problems(host, memory, disk)
    problems += _counted_problems(host, facts)
    return state, problems


def serving_status(host: str, facts: Mapping[str, Any] | None, port: Any) -> dict[str, Any]:
    """What the head's watchdog says, or why nobody says anything."""
    state_read: dict[str, Any] = {"state": "unknown", "line": f"no answer from the head {host}", "model": ""}
    if facts is None:
        return state_read
    serving = facts["serving"]
    unit = facts["units"].get("sparkthor-vllm", {})
    state = serving["state"]
    updated = state.get("updated")
    options, said = serving["options"], registry.alike(serving["options"])
    endpoint = front.api_url(facts["node"]["management"]["address"], port, bool(serving.get("tls")))
    state_read.update(
        model=serving["model"],
        executor=serving["executor"],
        maintenance=serving["maintenance"],
        tensor_parallel=int(said.get("tensor-parallel-size", 1) or 1),
        pipeline_parallel=int(said.get("pipeline-parallel-size", 1) or 1),
        max_model_len=said.get("max-model-len", ""),
        options=options,
        endpoint=endpoint,
        page=front.page_url(endpoint) if serving.get("page") else "",
        checks=serving.get("checks") or {},
        checked=last_checks.words(serving.get("checks") or {}, facts["time"]),
        certificate=serving.get("certificate", ""),
        unit=unit.get("active", "absent"),
        unit_seconds=unit.get("seconds"),
        restarts=state.get("restarts") or {},
    )
    if not serving["model"]:
        state_read.update(state="absent", line="nothing is set up to be served (run site.yml)")
    elif isinstance(updated, (int, float)) and abs(facts["time"] - updated) < FRESH_SECONDS:
        state_read.update(
            state=str(state.get("state", "unknown")),
            line=str(state.get("line", "")),
            healthy=bool(state.get("healthy")),
            since_seconds=round(max(0.0, facts["time"] - float(state.get("since") or facts["time"]))),
            completion=state.get("completion") or {},
            answers=state.get("answers") or {},
        )
    else:
        state_read.update(state="unknown", line=f"no watchdog reports; sparkthor-vllm is {state_read['unit']}")
    return state_read


def _served(head: str, facts: Mapping[str, Any] | None, port: Any) -> tuple[dict[str, Any], list[Finding]]:
    """Ray and serving of one serving group, by its head, and what is wrong with them."""
    ray, serving = ray_status(facts), serving_status(head, facts, port)
    problems = [
        Finding("ray", f"Ray: {item['cause']}", item["fix"], item.get("node") or head)
        for item in ray.get("problems", [])
    ]
    if ray["state"] == "down":
        problems.append(Finding("ray", f"Ray: {ray['line']}", "journalctl -u sparkthor-ray -n 50 on the head", head))
    if facts is not None and serving["state"] not in ("serving", "asleep", "absent"):
        fix = "ansible-playbook playbooks/start.yml" if serving["state"] in ("stopped", "maintenance") else ""
        fix = fix or "playbooks/doctor.yml says why"
        problems.append(Finding("serving", f"not serving: {serving['line']}", fix, head))
    if nonsense := answers.problem(serving.get("answers") or {}):
        engine = registry.ENGINES.get(facts["serving"].get("engine", "") if facts else "", registry.DEFAULT)
        problems.append(Finding("answers", nonsense, answers.fix(engine), head))
    return {"head": head, "ray": ray, "serving": serving}, problems


def _api_port(variables: Mapping[str, Any]) -> Any:
    return variables.get("vllm_serve_api_port", role_specs.defaults()["vllm_serve_api_port"])


def virtual_status(
    variables: Mapping[str, Any], heads: Sequence[str], facts_by_host: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], list[Finding]]:
    """Who has the virtual address of the front proxies, and whether that is one host; nothing where none is wanted."""
    address = virtual_address.wanted(variables).partition("/")[0]
    if not address:
        return {}, []
    interfaces = {host: facts["node"].get("interfaces") or [] for host, facts in facts_by_host.items()}
    problems, having = [], virtual_address.holders(address, interfaces)
    if len(having) > 1:
        what = f"the virtual address {address} is on {' and '.join(having)} at once: they do not hear each other"
        fix = "see that VRRP passes between them (journalctl -u sparkthor-address), then playbooks/doctor.yml"
        problems.append(Finding("virtual_address", what, fix, having[0]))
    if not having and set(heads) <= set(facts_by_host):
        what = f"no head has the virtual address {address}"
        fix = "journalctl -u sparkthor-address there; without it run site.yml --tags vllm_serve"
        problems.append(Finding("virtual_address", what, fix, heads[0]))
    return {"address": address, "holders": having}, problems


def _beside(host: str, facts: Mapping[str, Any] | None, port: Any) -> dict[str, tuple[dict[str, Any], list[Finding]]]:
    """By the name of each group beside the own one of a head the same as of that one."""
    statuses: dict[str, tuple[dict[str, Any], list[Finding]]] = {}
    if facts is None:
        return statuses
    for name, serving in facts["serving"].get("beside", {}).items():
        unit = facts["units"].get(Places(name).unit.removesuffix(".service"), {})
        # the certificate is that of the front proxy, which is told of once
        own = {"units": {"sparkthor-vllm": unit}, "serving": {"tls": facts["serving"].get("tls"), **serving}, "ray": {}}
        served, problems = _served(host, {**facts, **own}, port)
        problems = [replace(finding, what=f"group {name}: {finding.what}") for finding in problems]
        statuses[name] = {**served, "hosts": [host]}, problems
    return statuses


def ray_status(facts: Mapping[str, Any] | None) -> dict[str, Any]:
    if facts is None:
        return {"state": "unknown", "line": "no answer from the head"}
    ray = facts["ray"]
    cluster = ray.get("cluster")
    if not ray.get("configured"):
        return {"state": "absent", "line": "not set up"}
    if not cluster:
        return {"state": "down", "line": ray.get("error") or "its gate is not installed on the head"}
    return {
        "state": "healthy" if cluster.get("healthy") else "sick",
        "line": cluster.get("reason", ""),
        "alive": {item["name"]: item["address"] for item in cluster.get("alive", [])},
        "missing": cluster.get("missing", []),
        "present_nodes": cluster.get("present_nodes", 0),
        "expected_nodes": cluster.get("expected_nodes", 0),
        "present_gpus": cluster.get("present_gpus", 0),
        "expected_gpus": cluster.get("expected_gpus", 0),
        "strangers": cluster.get("strangers", []),
        "problems": cluster.get("problems", []),
        "version": cluster.get("ray_version", ""),
    }


def differing(hosts: Mapping[str, Mapping[str, Any]], parts: Iterable[Sequence[str]] = ()) -> dict[str, dict[str, str]]:
    """Versions on which the hosts that answered differ; ``parts`` are those of each serving group."""
    reached = {host: found for host, found in hosts.items() if found["reachable"]}
    return host_versions.differing(
        {host: host_versions_of(found) for host, found in reached.items()},
        {host: found["kind"] for host, found in reached.items()},
        parts,
    )


def host_versions_of(found: Mapping[str, Any]) -> dict[str, str]:
    """Of a host that answered."""
    return {**found["versions"], host_versions.KERNEL: found["kernel"], host_versions.DRIVER: found["driver"]}


def document(
    groups: Mapping[str, Sequence[str]],
    hostvars: Mapping[str, Mapping[str, Any]],
    outcomes: Mapping[str, Mapping[str, Any]],
    taken: float,
) -> dict[str, Any]:
    """Everything, as data.  ``outcomes`` is what C(node_info) returned, by host."""
    hosts = inventory.cluster_hosts(groups)
    facts_by_host = {host: outcome["status"] for host, outcome in outcomes.items() if outcome.get("status")}
    cluster, fabric, _nodes, plan_error = plan(groups, hosts, hostvars, facts_by_host)
    _known, lost = told_cidrs(hostvars, _told(facts_by_host))
    parts = inventory.parts(groups, inventory.named_groups(hostvars, hosts))
    heads = [part.hosts[0] for part in parts if part.hosts]
    head = heads[0] if heads else hosts[0]
    by_host: dict[str, Any] = {}
    problems = [Finding("plan", plan_error, "correct the inventory", "inventory")] if plan_error else []
    paused = units.paused([part.hosts for part in parts if part.hosts], facts_by_host)
    for host in hosts:
        outcome, facts = outcomes.get(host, {}), facts_by_host.get(host)
        by_host[host], told_here = host_status(
            host, hostvars[host], outcome, facts, fabric.get(host, {}), host in heads, paused.get(host, set())
        )
        if host in lost:
            by_host[host]["control_address"] = ""
            told_here.append(replace(lost[host], host=host))
        problems += told_here
    problems += _gpu_problems(facts_by_host) + _rate_problems(fabric, by_host) + _nccl_problems(facts_by_host, fabric)
    served: dict[str, dict[str, Any]] = {}
    for part in parts:
        if part.hosts:
            facts, port = facts_by_host.get(part.hosts[0]), _api_port(hostvars[part.hosts[0]])
            served[part.name], told_here = _served(part.hosts[0], facts, port)
            served[part.name]["hosts"] = part.hosts
            problems += told_here
            for name, group in _beside(part.hosts[0], facts, port).items():
                served[name], told_here = group
                problems += told_here
    virtual, told_here = virtual_status(hostvars[head], heads, facts_by_host)
    problems += told_here
    ray, serving = served[parts[0].name]["ray"], served[parts[0].name]["serving"]
    differences = differing(by_host, [part.hosts for part in parts])
    told = [host_versions.difference(name, versions) for name, versions in differences.items()]
    problems += [Finding("differs", what, host_versions.FIX, "cluster") for what in told]
    shown = {key: cluster.get(key) for key in ("topology", "profile", "head", "hosts", "head_address", "world")}
    if head not in facts_by_host or head in lost:
        shown["head_address"] = by_host[head]["control_address"]
    return {
        "version": VERSION,
        "taken": datetime.datetime.fromtimestamp(taken, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "ok": not problems and all(group["serving"]["state"] in ("serving", "asleep") for group in served.values()),
        "cluster": shown,
        "hosts": by_host,
        "ray": ray,
        "serving": serving,
        # of the first serving group is what stands above; here are all, where the inventory names some
        **({"groups": served} if any(served) else {}),
        **({"virtual": virtual} if virtual else {}),
        "differences": differences,
        "problems": [_public(found) for found in problems],
    }
