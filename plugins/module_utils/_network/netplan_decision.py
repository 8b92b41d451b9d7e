# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what a host's netplan file, the files made from it and its links need, without changing anything."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file, ssh
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import ERROR, Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    link_state,
    netplan,
    netplan_generator,
    netplan_inspect,
    netplan_others,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job

#: findings that the user may accept by name, because a change of ours does not touch what they are about
ACCEPTABLE = ("pending_edit", "runtime_address")


class ChangeError(Exception):
    """The change cannot or must not be made; nothing was written."""


@dataclass
class NetplanDecision:
    """What has to happen on a host."""

    changed: bool = False
    needs_apply: bool = False
    adopted: bool = False
    backup: str = ""
    findings: list[Finding] = field(default_factory=list)
    after: dict[str, job.FileState | None] = field(default_factory=dict)
    netdevs: list[str] = field(default_factory=list)
    expect: list[dict[str, Any]] = field(default_factory=list)
    drop: list[dict[str, str]] = field(default_factory=list)
    #: addresses that other hosts may have the next moment
    floating: list[str] = field(default_factory=list)
    #: NICs that our file gave an MTU and that now get none: no service puts Ethernet's own back by itself
    reset_mtu: list[str] = field(default_factory=list)
    diff: list[dict[str, str]] = field(default_factory=list)
    renderer: str = ""
    #: of what was set aside for our file: what comes back, and the copies that stay where they are
    restored: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def _text(state: job.FileState | None) -> str:
    return state["content"] if state else ""


def _diff(name: str, before: str, after: str, name_after: str = "") -> dict[str, str]:
    return {"before_header": name, "after_header": name_after or name, "before": before, "after": after}


def decide_environment(path: str, variables: dict[str, Any]) -> tuple[dict[str, job.FileState | None], dict[str, str]]:
    """The environment file if it has to change, and its diff."""
    wanted = {"content": environment_file.render(variables), "mode": 0o644, "uid": 0, "gid": 0}
    current = job.read_state(path)
    if current == wanted:
        return {}, {}
    return {path: wanted}, _diff(path, _text(current), str(wanted["content"]))


def blocking(findings: list[Finding], accept: list[str], replace_foreign: bool) -> list[Finding]:
    """The findings that forbid a change."""
    allowed = set(accept) & set(ACCEPTABLE)
    if replace_foreign:
        allowed |= {"foreign_file", "foreign_address"}
    return [finding for finding in findings if finding.severity == ERROR and finding.id not in allowed]


def explain(findings: list[Finding]) -> str:
    """Findings as one message: what, then how to fix it."""
    return "; ".join(f"{finding.what} ({finding.fix})" for finding in findings)


def _free_name(path: str) -> str:
    candidate, number = netplan_others.aside_name(path), 1
    while os.path.lexists(candidate):
        number += 1
        candidate = f"{netplan_others.aside_name(path)}.{number}"
    return candidate


def decide_present(params: dict[str, Any], management: str) -> NetplanDecision:
    """Compare the host with the plan."""
    path, links = params["path"], params["links"]
    if management in {link["netdev"] for link in links}:
        raise ChangeError(f"{management} carries the connection to this host and must not be a fabric NIC")
    problems = link_state.link_problems(links, job.live_links(), link_state.connected_routes())
    drifted = [problem for found in problems.values() for problem in found]
    written = netplan_inspect.written(path, links, params["renderer"])
    if written and not drifted:
        return _decide_attributes(written)

    seen = netplan_inspect.inspect(path, links, params["renderer"], params["floating"])
    unwanted = params["replace_foreign"] and netplan_inspect.CARRIER_BOUND in {item.id for item in seen["findings"]}
    decision = NetplanDecision(
        findings=seen["findings"],
        renderer=seen["renderer"],
        adopted=bool(seen["foreign"] and seen["adoptable"] and not unwanted),
        floating=sorted(seen["floating"]),
    )
    if decision.adopted and not drifted:
        return decision
    stopped = blocking(seen["findings"], params["accept"], params["replace_foreign"])
    if stopped:
        raise ChangeError(explain(stopped))
    if not decision.adopted:
        _replace_files(decision, params, seen)
    _remove_edits(decision, seen)
    _generated_files(decision, seen)
    _links_to_apply(decision, links, seen)
    decision.changed = decision.needs_apply = True
    if drifted:
        wanted = [
            f"{link['netdev']} has {link['address']}" + (f" and MTU {link['mtu']}" if link["mtu"] else "")
            for link in links
        ]
        decision.diff.append(_diff("live links", "\n".join(drifted) + "\n", "\n".join(wanted) + "\n"))
    return decision


def _decide_attributes(planned: dict[str, job.FileState | None]) -> NetplanDecision:
    """Our files with the planned contents: at most a mode or an owner is wrong."""
    decision = NetplanDecision()
    for path, wanted in planned.items():
        current = job.read_state(path)
        if current and wanted and current != wanted:
            decision.changed = True
            decision.after[path] = wanted
            link = f"a link to {current['link']}, " if "link" in current else ""
            before = f"{link}mode {current['mode']:04o}, owner {current['uid']}:{current['gid']}\n"
            decision.diff.append(_diff(path, before, f"mode {wanted['mode']:04o}, owner 0:0\n"))
    return decision


def _replace_files(decision: NetplanDecision, params: dict[str, Any], seen: dict[str, Any]) -> None:
    """Our files with the planned contents; what was in their place or in their way is set aside."""
    path, after = params["path"], decision.after
    if seen["foreign"]:
        decision.backup = _free_name(path)
        current = job.read_state(path)
        # what a link leads to is not ours to change
        after[decision.backup] = {**current, "mode": 0o600} if current and "link" not in current else current
    for name, wanted in seen["planned"].items():
        before, content = _text(job.read_state(name)), _text(wanted)
        if name == path or before != content:
            after[name] = wanted
        if before != content:
            decision.diff.append(_diff(name, before, content))
    for other in seen["aside"] if params["replace_foreign"] else []:
        kept = job.read_state(other)
        after[other] = None
        after[_free_name(other)] = kept
        decision.diff.append(_diff(other, f"{other}\n", "", f"{other} (set aside)"))


def _remove_edits(decision: NetplanDecision, seen: dict[str, Any]) -> None:
    """Profiles of ours that somebody edited go, so that what netplan makes of our file holds again."""
    for name in seen["edited"]:
        decision.after[name] = None
        # by name only: a profile may hold secrets
        decision.diff.append(_diff(name, f"{name} (our profile, edited)\n", ""))


def _generated_files(decision: NetplanDecision, seen: dict[str, Any]) -> None:
    """What the network services read of our NICs: as netplan makes it of the files as they will be."""
    generated = seen["generated"] if decision.adopted else seen["wanted"]
    after, ids = decision.after, seen["ids"]
    for name, state in generated.items():
        if netplan_generator.file_owner_of(name) in ids or name.endswith("10-globally-managed-devices.conf"):
            after[name] = state
    for name in seen["run"]:
        if netplan_generator.file_owner_of(name) in ids and name not in generated:
            after[name] = None
    rules = generated.get(netplan_generator.SHARED_RULES)
    if rules is not None:
        live = _text(seen["run"].get(netplan_generator.SHARED_RULES))
        merged = netplan_generator.merge_rules(live, rules["content"], ids)
        after[netplan_generator.SHARED_RULES] = {**rules, "content": merged}


def _links_to_apply(decision: NetplanDecision, links: list[dict[str, Any]], seen: dict[str, Any]) -> None:
    """NICs to apply, what must be live on them afterwards, and the addresses and MTUs that must go."""
    live = seen["live"]
    decision.netdevs = sorted(name for name in seen["ids"] if name in live)
    decision.expect = [{key: link[key] for key in ("netdev", "address", "mtu")} for link in links]
    without = set(decision.netdevs) - {link["netdev"] for link in links}
    decision.reset_mtu = _given_mtu(seen["generated"], without, live)
    planned = {(link["netdev"], link["address"]) for link in links}
    decision.drop = [
        {"netdev": name, "address": address}
        for name in decision.netdevs
        for address, item in live[name]["addresses"].items()
        if item["family"] == "inet"
        and item["scope"] == "global"
        and (name, address) not in planned
        and address.partition("/")[0] not in seen["floating"]
    ]


def _given_mtu(generated: dict[str, job.FileState], netdevs: set[str], live: dict[str, dict[str, Any]]) -> list[str]:
    """NICs of this set that generated files give an MTU (``MTUBytes=`` of networkd, ``mtu=`` of NetworkManager)."""
    setting = re.compile(r"(?im)^mtu(bytes)?=")
    found: set[str] = set()
    for path, state in generated.items():
        if setting.search(state["content"]):
            owner = netplan_generator.file_owner_of(path)
            found |= {owner} if owner else netplan_others.nics_of(path, state["content"], live)
    return sorted(found & netdevs)


def _returnable(
    path: str, aside: dict[str, list[str]], seen: dict[str, Any], management: str
) -> dict[str, job.FileState]:
    """Of what was set aside (original → copies): the originals that can stand where they stood.

    Only what is about fabric NICs alone that nobody else configures by now, so that it changes nothing but what our
    file changed; and of several copies of one file nobody can tell which is meant.
    """
    live = seen["live"]
    taken = {netplan_generator.file_owner_of(name) for name in seen["others"]}
    free = set(live) - taken.union(
        {management}, *(netplan_others.named_nics(state["content"], live) for state in seen["others"].values())
    )
    sources = dict(seen["sources"])

    def fits(original: str, state: job.FileState) -> bool:
        if original != path and os.path.lexists(original):
            return False
        nics = netplan_others.nics_of(original, state["content"], live)
        if not nics or not nics <= free:
            return False
        if original.endswith(".yaml"):
            netplan_generator.generate({**sources, original: state["content"]})
            sources[original] = state["content"]
        return True

    back: dict[str, job.FileState] = {}
    for original, copies in aside.items():
        state = job.read_state(copies[0])
        if state is not None and len(copies) == 1:
            with contextlib.suppress(netplan_generator.NetplanError):
                if fits(original, state):
                    back[original] = state
    return back


def _own_copies(aside: dict[str, list[str]]) -> list[str]:
    """Of what was set aside: edits of our own profile, which nobody had before us."""
    return [
        copy
        for original, copies in aside.items()
        for copy in copies
        if (state := job.read_state(copy)) and netplan_others.is_edit_of_ours(original, state["content"])
    ]


def decide_absent(params: dict[str, Any], management: str) -> NetplanDecision:
    """What taking our file away means: what it was put in place of comes back."""
    path = params["path"]
    decision = NetplanDecision()
    current = job.read_state(path)
    settings = job.read_state(netplan.NM_CONF)
    if settings is not None:
        decision.changed = True
        decision.after[netplan.NM_CONF] = None
        decision.diff.append(_diff(netplan.NM_CONF, settings["content"], ""))
    if current is None:
        return decision
    if not netplan.is_ours(current["content"]):
        decision.adopted = True
        return decision
    seen = netplan_inspect.inspect(path, [], floating=params["floating"])
    decision.findings, decision.floating = seen["findings"], sorted(seen["floating"])
    stopped = blocking(seen["findings"], params["accept"], False)
    if stopped:
        raise ChangeError(explain(stopped))
    aside = netplan_others.set_aside(path)
    ours = _own_copies(aside)
    aside = {name: rest for name, copies in aside.items() if (rest := [one for one in copies if one not in ours])}
    back = _returnable(path, aside, seen, management)
    decision.restored = sorted(back)
    decision.kept = [copy for original, copies in aside.items() if original not in back for copy in copies]
    nics_back = (netplan_others.nics_of(name, state["content"], seen["live"]) for name, state in back.items())
    ids: set[str] = seen["previous"].union(*nics_back)
    if management in ids:
        raise ChangeError(f"{path} configures {management}, by which this host is reached; come in over another NIC")
    _remove_files(decision, path, ids, back, aside, seen)
    _remove_edits(decision, seen)
    decision.after.update(dict.fromkeys(ours))
    decision.changed = decision.needs_apply = True
    decision.diff.append(_diff(path, current["content"], ""))
    # by name only: a profile may hold secrets
    decision.diff += [_diff(f"{name} (set aside)", "", f"{name}\n", name) for name in decision.restored]
    return decision


def _remove_files(
    decision: NetplanDecision,
    path: str,
    ids: set[str],
    back: dict[str, job.FileState],
    aside: dict[str, list[str]],
    seen: dict[str, Any],
) -> None:
    """Our file and what netplan made of it go, what was set aside comes back, and addresses of ours are dropped."""
    yaml = {name: state["content"] for name, state in back.items() if name.endswith(".yaml")}
    generated = netplan_generator.generate({**seen["sources"], **yaml}) if yaml else {}
    ids = ids | {
        netplan_generator.file_owner_of(name) for name in (netplan_generator.generate(yaml) if yaml else ())
    } - {""}
    live = seen["live"]
    # what the network services read of what comes back
    theirs = {name: state for name, state in generated.items() if netplan_generator.file_owner_of(name) in ids}
    theirs.update((name, state) for name, state in back.items() if name not in yaml)
    decision.after[path] = None
    for name in seen["run"]:
        if netplan_generator.file_owner_of(name) in ids:
            decision.after[name] = None
    decision.after.update((aside[original][0], None) for original in back)
    decision.after.update({**back, **theirs})
    shared = netplan_generator.SHARED_RULES
    rules, new_rules = seen["run"].get(shared), generated.get(shared)
    if rules or new_rules:
        merged = netplan_generator.merge_rules(_text(rules), _text(new_rules), ids)
        decision.after[shared] = {**(rules or new_rules or {}), "content": merged} if merged else None
    given = netplan_others.configured_addresses(
        [state["content"] for name, state in seen["generated"].items() if netplan_generator.file_owner_of(name) in ids]
    ) - netplan_others.configured_addresses([state["content"] for state in theirs.values()])
    decision.netdevs = sorted(name for name in ids if name in live)
    decision.drop = [
        {"netdev": name, "address": address}
        for name in decision.netdevs
        for address in live[name]["addresses"]
        if address in given
    ]
    without = set(decision.netdevs) - set(_given_mtu(theirs, set(decision.netdevs), live))
    decision.reset_mtu = _given_mtu(seen["generated"], without, live)


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
