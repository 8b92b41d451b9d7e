#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: netplan_apply
short_description: Configure fabric NICs through netplan, with a rollback if the host is cut off
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Owns one netplan file, and only that. A file at its path that somebody else wrote is adopted if it means the same to
    netplan. Otherwise the module fails and leaves it alone, unless O(replace_foreign) is set.
  - First checks what else a change would bring along, and stops before anything is written - invalid YAML in other
    netplan files, edits in them that were never applied, addresses that exist at run time only, other settings for the
    same NICs.
  - Before it changes anything, it arms a rollback on the host (a systemd timer, and a unit in case of a reboot). It
    makes the change in a unit of its own. It disarms the rollback only over a new connection, and only if the
    management address is unchanged.
  - Reconfigures the fabric NICs only, so that the management NIC is not touched. C(netplan apply) is never run.
  - If there is nothing to change, one call verifies addresses, MTU and connected routes, and sends a do-not-fragment
    ping to each peer of each link, bound to the link's NIC.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
  - sparkthor.cluster.attributes.action
options:
  state:
    description:
      - V(present) configures the links as planned.
      - V(adopted) writes no network configuration; the links must already be as planned (topology C(lan)).
      - V(verified) changes nothing, and fails if a link or a peer is not as planned within O(wait) seconds.
      - V(inspected) changes nothing, and returns what would stop a change (RV(findings)).
      - V(absent) removes our file and its addresses, and restores the files that O(replace_foreign) replaced, under the
        same rollback. A file that cannot be restored safely stays aside and is named (RV(kept)).
    type: str
    choices: [present, adopted, verified, inspected, absent]
    default: present
  links:
    description: The links of this host.
    type: list
    elements: dict
    default: []
    suboptions:
      netdev:
        description: Name of the NIC.
        type: str
        required: true
      address:
        description: IPv4 address with prefix length, C(a.b.c.d/len).
        type: str
        required: true
      mtu:
        description: MTU to set; 0 leaves it as it is.
        type: int
        default: 0
      shared:
        description: Whether other NICs may be in its subnet, as on a LAN, where the metric of their routes decides.
        type: bool
        default: false
      peers:
        description: Who must answer on this link.
        type: list
        elements: dict
        default: []
        suboptions:
          host:
            description: Name for messages.
            type: str
            default: ''
          address:
            description: IPv4 address of the peer on the same subnet.
            type: str
            required: true
          mtu:
            description: MTU at the peer's end; 0 means the same as here.
            type: int
            default: 0
  path:
    description: The netplan file to own.
    type: path
    default: /etc/netplan/40-cx7.yaml
  renderer:
    description: Renderer for the fabric NICs. Empty leaves the host's default.
    type: str
    choices: ['', networkd, NetworkManager]
    default: ''
  management_address:
    description:
      - Address by which the host is reached. The address and default route of its NIC must not change.
      - If empty, the NIC that this ssh connection uses, or, without ssh, that of the default route.
    type: str
    default: ''
  rollback_timeout:
    description: Seconds after which the host rolls back an unconfirmed change by itself (30 to 600).
    type: int
    default: 60
  replace_foreign:
    description:
      - Replace a foreign file at O(path) that means something else or lacks C(ignore-carrier), set aside other files
        that configure only our NICs, and drop foreign addresses on them. What is replaced is kept under the same name
        with C(.sparkthor-aside) appended, and with a leading dot in NetworkManager's folder, because it reads every
        other name there.
    type: bool
    default: false
  floating:
    description:
      - Addresses that go from host to host, such as that of several front proxies. They are in no file of this host and
        nobody's mistake, and a rollback neither misses them nor brings them back. With or without a length.
      - The one that the newest play set up on this host is known without it.
    type: list
    elements: str
    default: []
  accept:
    description: Findings that do not stop a change.
    type: list
    elements: str
    choices: [pending_edit, runtime_address]
    default: []
  environment_path:
    description: File to write O(environment_variables) to, in the form that systemd's C(EnvironmentFile=) reads.
    type: path
  environment_variables:
    description: Variables for O(environment_path). Do not put secrets here.
    type: dict
    default: {}
  wait:
    description: Seconds that O(state=verified) waits until every peer answers.
    type: int
    default: 0
  confirm:
    description:
      - Whether to keep a change as soon as the controller has reached this host again.
      - With V(false) the rollback stays armed (RV(held)), and a failed change does not fail the task. A task with
        O(outcomes) then decides for all hosts. Without that task each host rolls its change back.
    type: bool
    default: true
  outcomes:
    description:
      - Name of the variable that a task with O(confirm=false) registered.
      - This task keeps the changes of that task if they succeeded on every host, and else rolls them back on every
        host. The other options must be the same as in that task.
    type: str
    default: ''
  step:
    description: Used by the action plugin, which splits a change into its start and its confirmation.
    type: str
    choices: [start, check, confirm, take_back]
    default: start
  reason:
    description: Used by the action plugin to say why a change is rolled back.
    type: str
    default: ''
  token:
    description: Used by the action plugin to recognise its own change.
    type: str
    default: ''
attributes:
  check_mode:
    details: The planned file is given to netplan's generator in a private folder, so a plan that netplan refuses fails
      in check mode too.
  action:
    details: It starts the change, closes the connection, and confirms over a new one.
"""

EXAMPLES = r"""
- name: Both halves of cage 1 on a switch
  sparkthor.cluster.netplan_apply:
    links:
      - netdev: enp1s0f1np1
        address: 10.100.0.1/27
        mtu: 9000
        peers:
          - host: spark2
            address: 10.100.0.2
      - netdev: enP2p1s0f1np1
        address: 10.100.0.33/27
        mtu: 9000
        peers:
          - host: spark2
            address: 10.100.0.34

- name: What would go wrong
  sparkthor.cluster.netplan_apply:
    state: inspected
    links: "{{ fabric_links }}"
  register: fabric_findings

- name: Change all hosts or none, first half
  sparkthor.cluster.netplan_apply:
    links: "{{ fabric_links }}"
    confirm: false
  register: fabric_change

- name: Change all hosts or none, second half
  sparkthor.cluster.netplan_apply:
    links: "{{ fabric_links }}"
    outcomes: fabric_change
  when: fabric_change.held is defined

- name: Give the ports back
  sparkthor.cluster.netplan_apply:
    state: absent
"""

RETURN = r"""
links:
  description: Each link as it is after the run.
  returned: with RV(verified)
  type: list
  elements: dict
  sample:
    - netdev: enp1s0f1np1
      address: 10.100.0.1/27
      mtu: 9000
      carrier: true
      ok: true
      problems: []
      peers:
        - host: spark2
          netdev: enp1s0f1np1
          address: 10.100.0.2
          payload: 8972
          reachable: true
          rtt_ms: 0.09
          error: ''
needs_change:
  description: Whether something has to be changed, or had to; unlike C(changed) no C(changed_when) overrides it.
  returned: O(state=present), O(state=adopted) and O(state=absent)
  type: bool
verified:
  description: Whether every link is as planned and every peer answered. Peers that are being configured at the same
    time may not answer yet; O(state=verified) with O(wait) is for afterwards.
  returned: except in check mode when something would change, and with O(state=absent) and O(state=inspected)
  type: bool
findings:
  description: What would stop a change, each with C(id), C(what), C(fix) and C(where) (the NIC or the file).
  returned: O(state=present), O(state=absent) and O(state=inspected)
  type: list
  elements: dict
adopted:
  description: Whether the file at O(path) is somebody else's and was left as it is.
  returned: O(state=present), O(state=absent) and O(state=inspected)
  type: bool
blocking:
  description: Those of RV(findings) that forbid a change with these options.
  returned: O(state=inspected)
  type: list
  elements: dict
armed:
  description: Whether an earlier change waits for its confirmation on the host.
  returned: O(state=inspected)
  type: bool
restored:
  description: Files set aside earlier that are back in their place, or in check mode would be.
  returned: O(state=absent)
  type: list
  elements: str
kept:
  description:
    - Copies set aside earlier that were left where they are, because there are several of one file, the file is there
      again, or it is about more than fabric NICs that nobody else configures.
  returned: O(state=absent)
  type: list
  elements: str
backup:
  description: Where a replaced foreign file is kept.
  returned: when one was replaced
  type: str
renderer:
  description: Which service configures the NICs.
  returned: when netplan was asked
  type: str
held:
  description: Whether a change is in place, proven, and still armed; V(false) with C(msg) where it failed.
  returned: after a change with O(confirm=false)
  type: bool
rollback:
  description: What the host did when a change was not confirmed; C(status), C(reason) and C(steps).
  returned: after a change
  type: dict
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Host
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.originals import Originals
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    link_state,
    netplan_decision,
    netplan_generator,
    netplan_inspect,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_change as change
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job


def inspect_or_verify(module: AnsibleModule) -> dict[str, Any]:
    """States that write no network configuration."""
    params = module.params
    if params["state"] == "inspected":
        seen = netplan_inspect.inspect(params["path"], params["links"], params["renderer"], params["floating"])
        stops = netplan_decision.blocking(seen["findings"], params["accept"], params["replace_foreign"])
        return {
            "changed": False,
            "findings": [finding.to_dict() for finding in seen["findings"]],
            "blocking": [finding.to_dict() for finding in stops],
            "renderer": seen["renderer"],
            "adopted": bool(seen["foreign"] and seen["adoptable"]),
            "armed": change.armed(),
        }
    result: dict[str, Any] = {"changed": False, "needs_change": False, "diff": []}
    if params["environment_path"] and params["state"] == "adopted":
        write_environment(module, result, not module.check_mode)
    report = link_state.verify(params["links"], params["wait"])
    result.update(links=report, verified=all(link["ok"] for link in report))
    wrong = [
        problem
        for link in report
        for problem in (link["problems"] if params["state"] == "verified" else _own_problems(link))
    ]
    if wrong:
        module.fail_json(msg="; ".join(wrong), **result)
    return result


def _own_problems(link: dict[str, Any]) -> list[str]:
    """Without the unanswered pings: a peer may be in the middle of its own change."""
    silent = sum(1 for peer in link["peers"] if not peer["reachable"])
    return link["problems"][: len(link["problems"]) - silent]


def write_environment(module: AnsibleModule, result: dict[str, Any], write: bool) -> None:
    """Bring the environment file up to date, or only say what would change."""
    files, diff = netplan_decision.decide_environment(
        module.params["environment_path"], module.params["environment_variables"]
    )
    if not files:
        return
    result["changed"] = result["needs_change"] = True
    result["diff"].append(diff)
    if write:
        for path, state in files.items():
            folder = os.path.dirname(path)
            if not os.path.isdir(folder):
                # so that a teardown takes it away again
                Originals(Host(run=run_limited)).remember("folders", folder, None)
            job.write_state(path, state)


def decided(module: AnsibleModule, decision: netplan_decision.NetplanDecision) -> dict[str, Any]:
    """The result so far: what was decided, with a warning of what stays set aside."""
    params = module.params
    result: dict[str, Any] = {
        "changed": decision.changed,
        "needs_change": decision.changed,
        "diff": list(decision.diff),
        "adopted": decision.adopted,
        "findings": [finding.to_dict() for finding in decision.findings],
        "renderer": decision.renderer,
        "started": False,
    }
    if decision.backup:
        result["backup"] = decision.backup
    if params["state"] == "absent":
        result.update(restored=decision.restored, kept=decision.kept)
    if decision.kept:
        module.warn(
            f"set aside when the fabric was configured, and not put back: {', '.join(decision.kept)} (there are several"
            " copies of it, the file is there again, or it is about more than fabric NICs that nobody else configures);"
            " rename what is wanted, then sudo netplan try"
        )
    return result


def start(module: AnsibleModule) -> dict[str, Any]:
    """Decide, and where the network has to change arm the way back and start the change."""
    params = module.params
    live, routes = job.live_links(), job.live_routes()
    management = netplan_decision.management_netdev(params["management_address"], live, routes)
    # of a run that died: all may look as planned until its timer takes that back
    leftover = module.check_mode and change.armed()
    if not module.check_mode:
        warning = change.clear_leftovers()
        if warning:
            module.warn(warning)
    elif leftover:
        module.warn("an unconfirmed network change is armed on this host; a real run takes it back first")
    if params["state"] == "absent":
        decision = netplan_decision.decide_absent(params, management)
    else:
        decision = netplan_decision.decide_present(params, management)
    result = decided(module, decision)
    if leftover:
        result["changed"] = result["needs_change"] = True
    wait = module.check_mode or decision.needs_apply or not params["confirm"]
    if params["environment_path"] and params["state"] == "present":
        # With a network change it waits for the confirmation: after a rollback the host has all its previous files.
        write_environment(module, result, not wait)
    if module.check_mode:
        if not decision.changed and not leftover and params["state"] == "present":
            report = link_state.verify(params["links"])
            result.update(links=report, verified=all(link["ok"] for link in report))
        return result
    if decision.needs_apply:
        if not management:
            module.fail_json(
                msg="no NIC with management_address or a default route found: nothing could watch over the"
                " way in, so nothing was changed",
                **result,
            )
        if not params["token"]:
            module.fail_json(msg="a change needs its action plugin, which confirms it over a new connection", **result)
        change.arm_and_start(decision, params, management)
        result["started"] = True
        return result
    if result["changed"] and not params["confirm"]:
        result["deferred"] = True  # files only: they are written when every host's change is sound
        return result
    for path, state in decision.after.items():
        job.write_state(path, state)
    if params["state"] == "present":
        report = link_state.verify(params["links"])
        result.update(links=report, verified=all(link["ok"] for link in report))
    return result


def confirm(module: AnsibleModule) -> dict[str, Any]:
    """Check a change that is live, disarm it, or report why it was rolled back."""
    params = module.params
    if params["step"] == "take_back":
        return {"changed": False, "rollback": change.take_back(params["token"], params["reason"])}
    outcome = change.confirm(params["token"], hold=params["step"] == "check")
    result: dict[str, Any] = {"changed": outcome["status"] in ("confirmed", "held"), "rollback": outcome}
    if outcome["status"] == "confirmed" and params["state"] == "present":
        if params["environment_path"]:
            write_environment(module, {"diff": []}, True)
        report = link_state.verify(params["links"])
        result.update(links=report, verified=all(link["ok"] for link in report))
    return result


def main() -> None:
    module = AnsibleModule(argument_spec=change.ARGUMENTS, supports_check_mode=True)
    params = module.params
    if not 30 <= params["rollback_timeout"] <= 600:
        module.fail_json(msg=f"rollback_timeout: {params['rollback_timeout']} is not between 30 and 600 seconds")
    if params["outcomes"]:
        module.fail_json(msg="outcomes are judged by the action plugin of this module, on the controller")
    if params["state"] in ("present", "adopted", "verified") and not params["links"]:
        module.fail_json(msg=f"links: state {params['state']} needs at least one link")
    try:
        if params["step"] != "start":
            result = confirm(module)
        elif params["state"] in ("present", "absent"):
            result = start(module)
        else:
            result = inspect_or_verify(module)
    except (netplan_decision.ChangeError, netplan_generator.NetplanError, RuntimeError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
