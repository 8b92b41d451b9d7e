# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with an inventory, found before any host is contacted.

Pure: plain dicts in, findings out.  Each names the variable, the host, the value and the fix.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.local_path import local

TOPOLOGIES = ("direct", "ring", "line", "switch", "lan")
RUNTIMES = ("venv", "container")
EXECUTORS = ("auto", "ray", "mp")
KINDS = ("spark", "thor", "generic")
#: shorter keys can be guessed; the same bound holds for the API key and the Ray token
MINIMUM_SECRET_LENGTH = 16

#: what every host of a serving group has in common, and serving groups may differ in
GROUP_WIDE = (
    "engine_runtime",
    "vllm_serve_executor",
    "vllm_serve_goal",
    "vllm_serve_recipe",
    "vllm_serve_model",
    "vllm_serve_tensor_parallel_size",
    "vllm_serve_pipeline_parallel_size",
)

#: variables that describe the cluster as a whole: a value that differs between hosts is a mistake
CLUSTER_WIDE = (
    "serving_groups",
    "serving_beside",
    "fabric_topology",
    "fabric_cidr",
    "fabric_lanes",
    "fabric_mtu",
    "fabric_nccl_patch",
    "fabric_reserved",
    *GROUP_WIDE,
    "vllm_serve_api_port",
    "vllm_serve_door_port",
    "vllm_serve_virtual_address",
    "vllm_serve_virtual_router_id",
    "ray_node_ports",
)

#: secrets a user may give; undefined means "generate one and keep it"
SECRETS = {
    "vllm_serve_api_key": "api_key",
    "ray_node_token": "ray_token",
    "vllm_serve_peer_secret": "peer_secret",
}


#: what is said of two hosts that have one address
_SHARED = "have the same address"

#: what an empty line of a host's way in is to say instead
_WAY_IN = {
    "ansible_host": "give the machine's address or name",
    "ansible_port": "give the port of its sshd, such as 22",
    "ansible_user": "give the user that ssh logs in as",
}

#: What the plan of fabric and cluster reads of each host's variables. Of what is served it reads the head's alone:
#: _plan/serving.py, READ_OF_HEAD.
PLANNED_BY = (
    *CLUSTER_WIDE,
    "ansible_host",
    "ansible_port",
    "ansible_user",
    "fabric_cage",
    "fabric_cages",
    "fabric_lan_nic",
    "fabric_overrides",
    "fabric_speed",
    "ray_node_num_gpus",
    "vllm_serve_virtual_interface",
)


def planned_by(variables: Mapping[str, Any], more: Iterable[str] = ()) -> dict[str, Any]:
    """Of a host's variables those that the plan is made from, and more; templating all of them would cost a second."""
    return {name: variables[name] for name in (*PLANNED_BY, *more) if name in variables}


#: the words of :func:`closest`
_MEANT = re.compile(r" \(did you mean '([^']+)'\?\)")
#: programs by whose names people call one of our choices
_CALLED = {"docker": "container", "podman": "container"}


def closest(value: str, choices: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` or an empty string."""
    known = list(choices)
    called = _CALLED.get(str(value).lower())
    match = [called] if called in known else difflib.get_close_matches(str(value), known, n=1, cutoff=0.5)
    return f" (did you mean '{match[0]}'?)" if match else ""


def without_consequences(problems: Iterable[Finding | str]) -> list[Finding | str]:
    """Without what only follows from a mistake that is among the problems itself, or tells it again."""
    told = list(problems)
    found = [one for one in told if isinstance(one, Finding)]
    unknown = [_MEANT.search(one.what) for one in found if one.id == "unknown"]
    meant = [match[1] for match in unknown if match]
    chosen = [one.where for one in found if one.id == "choice"]
    shared = [one.what.rpartition(" ")[2] for one in found if one.id == "address" and _SHARED in one.what]

    def follows(one: Finding | str) -> bool:
        if not isinstance(one, Finding):
            return False
        if one.id == "unset":  # the fix names all that could be set instead
            return any(name in f"{one.where} {one.fix}" for name in meant)
        if one.id == "argument":  # what the role's own specification says of the choice
            return any(re.search(rf"\b{re.escape(name)}\b", one.what) for name in chosen)
        if one.id == "engine":  # no engine does what is no choice
            return any(f"change {name}" in one.fix for name in chosen)
        # the fabric's own check of the addresses
        return one.id == "fabric" and any(f" is {address}: host" in one.what for address in shared)

    return [one for one in told if not follows(one)]


def cluster_hosts(groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Hosts of the cluster in plan order: the (first) head first, then the others as the inventory lists them."""
    head = [host for host in groups.get("ray_head", []) if host in groups.get("cluster", [])][:1]
    return head + [host for host in groups.get("cluster", []) if host not in head]


class Part(NamedTuple):
    """The hosts that serve one model together, the head first; the name is empty where they are the whole cluster."""

    name: str
    hosts: list[str]


def parts(groups: Mapping[str, Sequence[str]], names: Any) -> list[Part]:
    """The serving groups, by the names in ``serving_groups``; without any the cluster is the only one."""
    hosts = cluster_hosts(groups)
    # what is no list, or no name, is told by the check of the groups
    if not names or not isinstance(names, (list, tuple)):
        return [Part("", hosts)]
    heads = groups.get("ray_head", [])
    found = []
    for name in names:
        own = [host for host in hosts if isinstance(name, str) and host in groups.get(name, [])]
        found.append(Part(str(name), [*(h for h in own if h in heads), *(h for h in own if h not in heads)]))
    return found


def named_groups(hostvars: Mapping[str, Mapping[str, Any]], hosts: Sequence[str]) -> Any:
    """``serving_groups`` as the inventory gives it."""
    return (hostvars[hosts[0]].get("serving_groups") if hosts else None) or []


def _meant_group(groups: Mapping[str, Sequence[str]], hosts: Sequence[str]) -> tuple[str, str]:
    """A group of these hosts whose name is nearly one of ours, and that one; empty without one."""
    for name, members in groups.items():
        near = difflib.get_close_matches(name, ("ray_workers", "ray_head"), n=1, cutoff=0.6)
        if near and near[0] != name and set(hosts) <= set(members):
            return name, near[0]
    return "", ""


def _placeless(groups: Mapping[str, Sequence[str]], headless: bool, stray: Sequence[str]) -> Iterator[Finding]:
    """A cluster without a head, and hosts that are neither head nor worker: where one explains both, that one alone."""
    written, meant = _meant_group(groups, stray) if stray else ("", "")
    rename = f"rename the group {written} to {meant}" if meant else ""
    if headless:
        fix = "put exactly one host of the cluster into it"
        if stray and meant != "ray_workers":
            others = ", and the others into ray_workers" if len(stray) > 1 else ""
            fix = rename or f"put {'one of ' if others else ''}{', '.join(stray)} into it{others}"
        yield Finding("group", "it has no host", fix, where="group ray_head")
    if stray and (not headless or meant == "ray_workers"):
        be, pronoun = _number(stray)
        what = f"{be} in group cluster but in neither ray_head nor ray_workers"
        yield Finding("group", what, rename or f"put {pronoun} into one", ", ".join(stray))


def _number(hosts: Sequence[str]) -> tuple[str, str]:
    """How a sentence about these hosts begins, and what it calls them where it goes on."""
    return ("it is", "it") if len(hosts) == 1 else ("they are", "them")


def group_problems(groups: Mapping[str, Sequence[str]], names: Any = ()) -> list[Finding]:
    """Problems of the groups ``cluster``, ``ray_head`` and ``ray_workers``; ``names`` are those of serving groups."""
    cluster = list(groups.get("cluster", []))
    heads = list(groups.get("ray_head", []))
    workers = list(groups.get("ray_workers", []))
    problems: list[Finding] = []
    if not cluster:
        fix = "make it the parent of the groups ray_head and ray_workers"
        return [Finding("group", "it has no hosts", fix, where="group cluster")]
    stray = [host for host in cluster if host not in heads and host not in workers]
    problems += _placeless(groups, not heads, stray)
    if len(heads) > 1 and not names:
        what = f"it has {len(heads)} hosts ({', '.join(heads)})"
        fix = "a cluster has one head, move the others to ray_workers (or name serving_groups, each with its own head)"
        problems.append(Finding("group", what, fix, where="group ray_head"))
    both = [host for host in heads if host in workers]
    if both:
        be, pronoun = _number(both)
        fix = f"remove {pronoun} from one of the two groups"
        problems.append(Finding("group", f"{be} in both ray_head and ray_workers", fix, ", ".join(both)))
    outside = [host for host in [*heads, *workers] if host not in cluster]
    if outside:
        what = f"{_number(outside)[0]} in ray_head or ray_workers but not in group cluster"
        problems.append(Finding("group", what, "make both groups children of cluster", ", ".join(outside)))
    for host in cluster:
        kinds = [kind for kind, group in (("spark", "sparks"), ("thor", "thors")) if host in groups.get(group, [])]
        if len(kinds) > 1:
            fix = "a host is of one kind, remove it from one of the two"
            problems.append(Finding("group", "it is in both groups sparks and thors", fix, host))
    return problems


def asserted_kinds(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Kind by host where the groups ``sparks`` and ``thors`` assert one."""
    kinds = dict.fromkeys(groups.get("sparks", []), "spark")
    kinds.update(dict.fromkeys(groups.get("thors", []), "thor"))
    return kinds


def overrides(hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Addresses that the user allots by hand, by host (``fabric_overrides`` is a host variable)."""
    return {host: values["fabric_overrides"] for host, values in hostvars.items() if values.get("fabric_overrides")}


def cages(hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The cage that each host's cable is in, or both, where the inventory says it: cables may join different ones."""
    return {
        host: values.get("fabric_cages") or values["fabric_cage"]
        for host, values in hostvars.items()
        if values.get("fabric_cages") or "fabric_cage" in values
    }


def cage_problems(hostvars: Mapping[str, Mapping[str, Any]], hosts: Sequence[str]) -> list[Finding]:
    """Hosts whose two variables of cages contradict each other: nobody can say which one is meant."""
    problems: list[Finding] = []
    for host in hosts:
        cage, several = hostvars[host].get("fabric_cage"), hostvars[host].get("fabric_cages")
        if isinstance(several, list) and several and cage is not None and str(cage) not in map(str, several):
            what = f"fabric_cages of this host is {several}, without that cage"
            problems.append(Finding("fabric", what, "remove one of the two", host, "fabric_cage", cage))
    return problems


def wide_problems(
    hostvars: Mapping[str, Mapping[str, Any]],
    hosts: Sequence[str],
    names: Sequence[str] = CLUSTER_WIDE,
    place: str = "cluster",
) -> list[Finding]:
    """Variables of these ``names`` whose value differs between hosts; ``place`` is the group to set them for."""
    problems: list[Finding] = []
    for name in names:
        values: dict[str, list[str]] = {}
        for host in hosts:
            if name in hostvars[host]:
                values.setdefault(repr(hostvars[host][name]), []).append(host)
            else:
                values.setdefault("undefined", []).append(host)
        if len(values) > 1:
            shown = "; ".join(f"{_shown(value)} on {', '.join(names)}" for value, names in values.items())
            what = f"it differs between hosts ({shown})"
            problems.append(Finding("differs", what, f"set it once, in group_vars/{place}.yml", where=name))
    return problems


def _shown(value: str) -> str:
    """A value as Python writes it; what is in a mapping may be secret."""
    return "a mapping (not shown)" if "{" in value else value


def choice_problem(name: str, value: Any, choices: Sequence[str]) -> list[Finding]:
    if value in choices:
        return []
    what = f"on all hosts; it is not one of {', '.join(choices)}{closest(str(value), choices)}"
    return [Finding("choice", what, "set it in the inventory's group_vars", where=name, value=value)]


def secret_problems(hostvars: Mapping[str, Mapping[str, Any]], hosts: Sequence[str]) -> list[Finding]:
    """Given secrets that are empty or short.  The value itself is never part of the message."""
    problems: list[Finding] = []
    for name in SECRETS:
        wrong: dict[str, list[str]] = {}
        for host in hosts:
            if name not in hostvars[host]:
                continue
            value = hostvars[host][name]
            length = len(str(value).strip()) if value is not None else 0
            if length < MINIMUM_SECRET_LENGTH:
                what = "is empty" if length == 0 else f"has {length} characters"
                wrong.setdefault(what, []).append(host)
        fix = (
            f"give at least {MINIMUM_SECRET_LENGTH} characters (Vault is a good place), or remove the variable and one "
            "is generated and kept"
        )
        for what, named in wrong.items():
            problems.append(Finding("secret", f"the value given {what}", fix, ", ".join(named), name))
    return problems


def stated_gpus(values: Iterable[Any]) -> int | None:
    """GPUs of all hosts by each one's ``ray_node_num_gpus``, one where it is not set; None where only hosts know."""
    total = 0
    for value in values:
        text = str(1 if value in (None, "") else value).strip()
        if isinstance(value, bool) or not re.fullmatch(r"[0-9]+", text):
            return None  # auto, or what the role's own check has words for
        total += int(text)
    return total


#: what may be given for a part of the split
SPLIT_FIX = "give a whole number from 1, or remove the line and the split is planned"


def parallel_problems(
    hostvars: Mapping[str, Mapping[str, Any]], hosts: Sequence[str], place: str = "cluster"
) -> list[Finding]:
    """An explicit split that the GPUs of the hosts, as far as the inventory states them, cannot carry."""
    variables = hostvars[hosts[0]]
    problems: list[Finding] = []
    sizes = {}
    for name in ("vllm_serve_tensor_parallel_size", "vllm_serve_pipeline_parallel_size"):
        value = variables.get(name)
        if value in (None, ""):
            continue
        try:
            sizes[name] = int(value)
        except (TypeError, ValueError):
            fix = SPLIT_FIX
            problems.append(Finding("type", "it is not a whole number", fix, where=name, value=value))
            continue
        if sizes[name] < 1:
            fix = SPLIT_FIX
            problems.append(Finding("value", "it is less than 1", fix, where=name, value=value))
    if problems or not sizes:
        return problems
    gpus = stated_gpus(hostvars[host].get("ray_node_num_gpus") for host in hosts)
    if gpus is None:
        return problems
    product = 1
    for size in sizes.values():
        product *= size
    if product > gpus:
        split, them, lines = "it", "it", "the line"
        if len(sizes) > 1:
            split = " × ".join(f"{name.split('_')[2]} parallel {size}" for name, size in sizes.items())
            them, lines = "them", "the lines"
        what = f"{split} needs {product} GPUs, and the {len(hosts)} host(s) of group {place} have {gpus}"
        fix = f"lower {them}, remove {lines} and the split is planned, or add hosts to ray_workers"
        value = product if len(sizes) == 1 else None
        problems.append(Finding("split", what, fix, where=" and ".join(sizes), value=value))
    return problems


def _is_address(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 4
    except ValueError:
        return False


def address_problems(hostvars: Mapping[str, Mapping[str, Any]], hosts: Sequence[str]) -> list[Finding]:
    """Two inventory names for one machine, an address that is none, and an empty line of a way in."""
    seen: dict[tuple[str, str], str] = {}
    problems: list[Finding] = []
    for host in hosts:
        empty = [name for name in _WAY_IN if hostvars[host].get(name, name) in (None, "")]
        for name in empty:
            problems.append(Finding("unset", "it is empty", f"{_WAY_IN[name]}, or remove the line", host, name))
        if "ansible_host" in empty:
            continue
        address = hostvars[host].get("ansible_host", host)
        if re.fullmatch(r"\d+(?:\.\d+)+", str(address)) and not _is_address(str(address)):
            fix = "give four numbers from 0 to 255, such as 192.168.1.11, or the machine's name"
            problems.append(Finding("address", "it is no IPv4 address", fix, host, "ansible_host", value=str(address)))
        key = (str(hostvars[host].get("ansible_host", host)), str(hostvars[host].get("ansible_port", 22)))
        if key in seen:
            what = f"hosts {seen[key]} and {host} {_SHARED} {key[0]}"
            problems.append(Finding("address", what, "give each host its own", where="ansible_host"))
        seen.setdefault(key, host)
    return problems


def forks_problems(hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], forks: int) -> list[Finding]:
    """Cabled neighbours probe each other at the same time; one after the other they would see nobody."""
    topology = hostvars[hosts[0]].get("fabric_topology") if hosts else None
    if topology not in ("direct", "ring", "line") or forks >= len(hosts):
        return []
    what = (
        f"{forks} is less than the {len(hosts)} hosts of a {topology}, which probe each other's cables at the same time"
    )
    fix = f"run with --forks={len(hosts)} or more (or set forks in ansible.cfg)"
    return [Finding("forks", what, fix, where="forks")]


def inventory_problems(groups: Mapping[str, Sequence[str]], hostvars: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Every problem of the inventory that needs no host, in the order a person would fix them.

    ``groups`` maps group name → host names; ``hostvars`` maps host → its variables (defaults of roles not included).
    """
    hosts = cluster_hosts(groups)
    names = named_groups(hostvars, hosts)
    problems = group_problems(groups, names)
    if not hosts:
        return problems
    wide = tuple(name for name in CLUSTER_WIDE if not names or name not in GROUP_WIDE)
    problems += wide_problems(hostvars, hosts, wide)
    first = hostvars[hosts[0]]
    if "fabric_topology" not in first:
        fix = f"say how the hosts are cabled: {', '.join(TOPOLOGIES)}"
        problems.append(Finding("unset", "it is not set", fix, hosts[0], "fabric_topology"))
    else:
        problems += choice_problem("fabric_topology", first["fabric_topology"], TOPOLOGIES)
    for name, choices in (("engine_runtime", RUNTIMES), ("vllm_serve_executor", EXECUTORS)):
        for value in dict.fromkeys(str(hostvars[host][name]) for host in hosts if name in hostvars[host]):
            problems += choice_problem(name, value, choices)
    problems += cage_problems(hostvars, hosts)
    problems += address_problems(hostvars, hosts)
    problems += secret_problems(hostvars, hosts)
    for part in parts(groups, names):
        if part.hosts:
            problems += wide_problems(hostvars, part.hosts, GROUP_WIDE, part.name) if names else []
            problems += parallel_problems(hostvars, part.hosts, part.name or "cluster")
    return problems


#: what Ansible puts before the words of ssh
_ANSIBLE_SAYS = re.compile(r"(?:.*\bover ssh|Failed to connect to the host via ssh): ")
#: what ssh, sudo and Python say when the first contact fails, and what to do about it
_CONTACT = (
    (
        "remote host identification has changed",
        "its host key differs from the one known here",
        "if the machine was reinstalled, `ssh-keygen -R {address}` and connect once by hand; if not, find out why "
        "before going on",
    ),
    (
        "host key verification failed",
        "its host key is not known here yet",
        "connect once with `ssh {user}@{address}`, compare the fingerprint with the one on the machine "
        "(`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`), and accept it",
    ),
    (
        "permission denied",
        "ssh did not let user {user} in",
        "`ssh-copy-id {user}@{address}`, or set ansible_user (user names may differ per host) and "
        "ansible_ssh_private_key_file for this host",
    ),
    *(
        (
            words,
            "the become password is wrong for user {user}",
            "it may differ per host: set ansible_become_password per host",
        )
        for words in ("incorrect sudo password", "duplicate become password prompt", "sorry, try again")
    ),
    (
        "not in the sudoers file",
        "user {user} may not use sudo",
        "add it to the group sudo (`usermod -aG sudo {user}` as root), or set ansible_user to one that may",
    ),
    *(
        (words, "it has no sudo", "install sudo on it, as root")
        for words in ("sudo: not found", "sudo: command not found")
    ),
    (
        "sudo password",
        "user {user} needs a password for sudo",
        "run with -K (--ask-become-pass), or put ansible_become_password into Vault",
    ),
    (
        "password is required",
        "user {user} needs a password for sudo",
        "run with -K (--ask-become-pass), or put ansible_become_password into Vault",
    ),
    (
        "could not resolve hostname",
        "its name does not resolve",
        "set ansible_host to the machine's management address",
    ),
    (
        "connection refused",
        "the machine answers but runs no ssh server on that port",
        "install openssh-server, or set ansible_port",
    ),
    *(
        (
            words,
            "there is no Python at ansible_python_interpreter",
            "install python3 on it, or set ansible_python_interpreter to what `command -v python3` names there",
        )
        for words in ("no such file or directory", "the module interpreter")
    ),
    (
        "timed out after",
        "it answers, but a command there hung past its time limit",
        "run `ssh {user}@{address} uptime`: high load or memory without a free page is why; end what takes it",
    ),
    *(
        (
            words,
            "it does not answer at {address}: powered off, frozen, or on another network",
            "look at the machine, and check power, cable, ansible_host and ansible_port. Frozen (a host whose GPU "
            "shares its memory freezes when that is full): hold the power button 10 s and start it again",
        )
        for words in ("timed out", "no route to host", "host is down", "network is unreachable")
    ),
    (
        "",
        "it cannot be reached at {address}",
        "check power, cable, ansible_host and ansible_port, then `ssh {user}@{address}`",
    ),
)


def explain_contact(host: str, address: str, user: str, message: str) -> Finding:
    """Why a host could not be reached or did not let us in, told from what ssh, sudo or Python said.

    The id is ``no_contact`` where they said nothing that is known here.
    """
    text = _ANSIBLE_SAYS.sub("", " ".join(message.split()))
    lowered = text.lower()
    known, what, fix = next(entry for entry in _CONTACT if entry[0] in lowered)
    names = {"user": user or "<your user>", "address": address}
    kind = "contact" if known else "no_contact"
    return Finding(kind, what.format(**names), fix.format(**names), host, source=text[-300:])


def secrets_dir(variables: Mapping[str, Any], template: Callable[[Any], Any]) -> str:
    """Where secrets are kept on the controller: beside the inventory unless ``sparkthor_secrets_dir`` says otherwise.

    ``template`` evaluates a host's variable.
    """
    if "sparkthor_secrets_dir" in variables:
        return local(str(template(variables["sparkthor_secrets_dir"]) or ""))
    return f"{template(variables['inventory_dir'])}/.secrets"
