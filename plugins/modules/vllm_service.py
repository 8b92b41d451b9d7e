#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service
short_description: Start, stop, restart, drain, wait for or roll back the serving group
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the head; V(rolled_back) runs on every host. Tells the watchdog about the change, so that it does not undo
    it.
  - While drained or stopped, the front proxy stays up and answers 503 with C(Retry-After).
extends_documentation_fragment:
  - sparkthor.cluster.attributes
options:
  state:
    description:
      - V(stopped) stops the group until V(started) or V(restarted), also after reboots. The watchdog does nothing until
        then.
      - V(started) ends a stop or a drain, and starts the group without waiting for it.
      - V(restarted) does the same, and restarts a group that runs.
      - V(awake) brings the host's own group back where a group on demand (C(serving_beside)) serves in its place.
      - V(drained) takes no new requests and waits until the running ones have ended.
      - V(serving) waits for the first real completion. It must come back through all ranks, because vLLM's own
        C(/health) is no proof. While it waits, the controller shows the newest meaningful line of the engine's log and
        the time. A start that fails ends the task early, with the reason from the journal. A group that sleeps until
        its model is asked for is as it should be (RV(state) is V(asleep)), and is not started.
      - V(kept) keeps the files of O(paths) under O(name) as the configuration that served last. Without O(name) it only
        reads RV(digest) and RV(configurations).
      - V(rolled_back) writes the files of the kept configuration O(name), if they differ, and restarts nothing.
      - V(told) writes for the door of a head by which O(names) another one serves its models, and reloads nothing.
    type: str
    choices: [started, stopped, restarted, drained, awake, serving, kept, rolled_back, told]
    required: true
  drain_timeout:
    description:
      - Seconds to wait for running requests. V(0) does not wait with O(state=stopped) and O(state=restarted).
      - With O(state=serving) and O(start), before a group that runs is restarted.
    type: int
    default: 0
  reason:
    description: Reason that the watchdog and C(/health) show while the group is stopped.
    type: str
    default: stopped by playbook
  start:
    description: With O(state=serving), whether to start the group, or restart it once if its files changed.
    type: bool
    default: false
  settle:
    description:
      - Seconds to wait for the ranks of other hosts to report changed files, before O(start) decides. Used with
        executor V(mp), where each rank has its own unit.
    type: float
    default: 0
  timeout:
    description: With O(state=serving), seconds to wait for the first completion.
    type: int
    default: 2700
  attempts:
    description: Failed starts after which waiting ends. A failure that another start cannot change ends it at once.
    type: int
    default: 3
  patience:
    description: Seconds that one completion may take.
    type: int
    default: 20
  config:
    description: With O(state=serving), the description of the serving group on the head.
    type: path
    default: /etc/sparkthor/serving.json
  group:
    description:
      - Name of a serving group beside the host's own one (C(serving_beside)). Not with O(state=kept) and
        O(state=rolled_back), which are about all groups of the host.
    type: str
    default: ""
  known_invocation:
    description: Used by the controller's side of this module.
    type: str
    default: ""
  name:
    description: Name of a configuration, the same on all hosts.
    type: str
    default: ""
  paths:
    description:
      - With O(state=kept), the files and links that make the configuration of this host. If empty, those of the kept
        configuration O(name), which becomes the newest again.
    type: list
    elements: path
    default: []
  hosts:
    description: With O(state=rolled_back), the hosts that serve now. Who belongs to the group is not rolled back.
    type: list
    elements: str
    default: []
  machines:
    description:
      - With O(state=rolled_back), by host the RV(machine) that O(state=kept) returned there, so that hosts with new
        names are known again.
    type: dict
    default: {}
  names:
    description: With O(state=told), the RV(names) that O(state=rolled_back) returned on the other head.
    type: str
    default: ""
attributes:
  check_mode:
    details: With O(state=serving) it says whether the group would be started or restarted, and does not wait.
  diff_mode:
    support: partial
    details: With O(state=rolled_back) the files; otherwise the steps are in the result.
"""

EXAMPLES = r"""
- name: Stop serving, after the running requests have ended
  sparkthor.cluster.vllm_service:
    state: stopped
    drain_timeout: 300
    reason: new cables
  become: true

- name: Wait for the model
  sparkthor.cluster.vllm_service:
    state: serving
    start: true
    timeout: 3600
  become: true

- name: Put back a configuration that served
  sparkthor.cluster.vllm_service:
    state: rolled_back
    name: 5f0c9a1d77e2
    hosts: "{{ groups['cluster'] }}"
  become: true
"""

RETURN = r"""
steps:
  description: What was (in check mode, would be) done.
  returned: with O(state=started), O(state=stopped), O(state=restarted), O(state=drained) and O(state=awake)
  type: list
  elements: str
in_flight:
  description: Requests that were still running at the end of a drain.
  returned: when requests were counted
  type: int
ready:
  description: Whether a completion came back.
  returned: with O(state=serving)
  type: bool
state:
  description: State of the serving group, such as V(serving) or V(loading).
  returned: with O(state=serving)
  type: str
line:
  description: State with its detail.
  returned: with O(state=serving)
  type: str
  sample: "loading: 41 % · loading weights 42 %"
deadline_problem:
  description:
    - Why the watchdog's deadline or interval is refused, with the latency that was measured; empty if they are fit.
    - The task fails with it; the watchdog itself never uses a deadline shorter than four ordinary completions.
  returned: with O(state=serving)
  type: str
latency:
  description: Seconds that the completion took.
  returned: with O(state=serving), when a completion came back
  type: float
waited:
  description: Seconds until the first completion.
  returned: with O(state=serving), when a completion came back
  type: float
loaded:
  description: What took how long in the load that has just ended; empty where it was not watched from its start.
  returned: with O(state=serving), when a completion came back
  type: str
  sample: "91 s: starting 12 s, loading weights 50 s, compiling 20 s"
answers:
  description:
    - How many simple tasks (C(asked)) the model answered rightly (C(right)) after a start, and the first wrong answer
      (C(wrong)). Fewer than three quarters give a warning.
    - V(none) without a start, and where it cannot be known, such as for random weights or a model without a chat.
  returned: with O(state=serving)
  type: dict
certificate:
  description: SHA-256 fingerprint of the API's certificate; empty if the head did not make it itself.
  returned: with O(state=serving)
  type: str
stale:
  description: Files whose change made a restart necessary.
  returned: with O(state=serving)
  type: list
  elements: str
files:
  description: Files that were (in check mode, would be) put back or removed.
  returned: with O(state=rolled_back) and O(state=told)
  type: list
  elements: str
names:
  description: By which names the doors of other heads have to know the models of this one; empty without a door.
  returned: with O(state=rolled_back)
  type: str
beside:
  description: Serving groups beside the host's own one that the configuration knows.
  returned: with O(state=rolled_back)
  type: list
  elements: str
beside_since:
  description: Serving groups beside the host's own one that came after the configuration was kept.
  returned: with O(state=rolled_back)
  type: list
  elements: str
digest:
  description: Of what lies at O(paths) now.
  returned: with O(state=kept)
  type: str
machine:
  description: What this machine keeps under any name; empty if it has no machine-id.
  returned: with O(state=kept)
  type: str
executor:
  description: What starts the ranks of the host's own group now, V(ray) or V(mp).
  returned: with O(state=kept)
  type: str
configurations:
  description: What is kept, the newest first, each with C(name), C(digest) and C(about).
  returned: with O(state=kept)
  type: list
  elements: dict
"""

import dataclasses
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts.machine import read_identity
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import control, front_config
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept, ready


def argument_spec() -> dict[str, Any]:
    return {
        "state": {
            "type": "str",
            "choices": [*control.STATES, "serving", "kept", "rolled_back", "told"],
            "required": True,
        },
        "drain_timeout": {"type": "int", "default": 0},
        "reason": {"type": "str", "default": "stopped by playbook"},
        "start": {"type": "bool", "default": False},
        "settle": {"type": "float", "default": 0},
        "timeout": {"type": "int", "default": 2700},
        "attempts": {"type": "int", "default": 3},
        "patience": {"type": "int", "default": 20},
        "config": {"type": "path", "default": "/etc/sparkthor/serving.json"},
        "group": {"type": "str", "default": ""},
        "known_invocation": {"type": "str", "default": ""},
        "hosts": {"type": "list", "elements": "str", "default": []},
        "machines": {"type": "dict", "default": {}},
        "name": {"type": "str", "default": ""},
        "names": {"type": "str", "default": ""},
        "paths": {"type": "list", "elements": "path", "default": []},
    }


def change_state(module: AnsibleModule) -> None:
    params = module.params
    host = control.of_group(params["group"], module.check_mode)
    try:
        outcome = host.apply(params["state"], params["reason"], params["drain_timeout"])
    except control.ControlError as error:
        module.fail_json(msg=str(error), **dataclasses.asdict(host.outcome))
    module.exit_json(**dataclasses.asdict(outcome))


def report_readiness(module: AnsibleModule) -> None:
    """One of many answers; the controller's side of this module asks until it is ready."""
    params = module.params
    try:
        readiness = ready.ensure(
            **{"config_path": params["config"], **ready.paths_of(params["group"])},
            start=params["start"],
            check=module.check_mode,
            known_invocation=params["known_invocation"],
            patience=params["patience"],
            settle=params["settle"],
            restart=control.drained_restart(params["group"], params["drain_timeout"]),
        )
    except ready.ReadyError as error:
        module.fail_json(msg=str(error))
    result = dataclasses.asdict(readiness)
    result["deadline_problem"] = ready.deadline_problem(result) if readiness.ready else ""
    # the last answer after a start; a group that was not started anew has been asked then
    after_start = readiness.ready and bool(params["known_invocation"])
    config = ready.paths_of(params["group"]).get("config_path", params["config"])
    result["answers"] = ready.answers(config) if after_start else None
    result["answers_problem"] = ready.answers_problem(result["answers"])
    result["certificate"] = front_config.fingerprint()
    module.exit_json(**result)


def keep(module: AnsibleModule) -> None:
    name, changed = module.params["name"], False
    try:
        paths = module.params["paths"] or (list(kept.without_former(kept.choose(name)).items) if name else [])
        digest = kept.digest(kept.present(paths))
        if name:
            newest = next(iter(kept.read()), None)
            changed = newest is None or (newest.name, kept.digest(newest.items)) != (name, digest)
            if changed and not module.check_mode:
                kept.keep(name, paths)
    except (kept.KeptError, OSError, UnicodeDecodeError) as error:
        module.fail_json(msg=f"what serves cannot be kept on this host: {error}")
    known = [{"name": one.name, "digest": kept.digest(one.items), "about": one.about} for one in kept.read()]
    module.exit_json(
        changed=changed, digest=digest, machine=read_identity(), configurations=known, executor=kept.executor()
    )


def roll_back(module: AnsibleModule) -> None:
    params = module.params
    try:
        chosen = kept.choose(params["name"])
        changes = kept.differences(chosen, params["hosts"], machines=params["machines"])
        if not module.check_mode:
            kept.apply(changes)
        outcome = {"names": kept.names(), **kept.beside(chosen)._asdict()}
    except (kept.KeptError, OSError, UnicodeDecodeError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**_shown(changes), **outcome)


def _shown(changes: list[kept.Change]) -> dict[str, Any]:
    return {
        "changed": bool(changes),
        "files": [change.path for change in changes],
        "diff": [change.shown() for change in changes],
    }


def tell(module: AnsibleModule) -> None:
    try:
        changes = kept.told(module.params["names"])
        if not module.check_mode:
            kept.apply(changes)
    except (kept.KeptError, OSError, UnicodeDecodeError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**_shown(changes))


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    own = {"serving": report_readiness, "kept": keep, "rolled_back": roll_back, "told": tell}
    own.get(module.params["state"], change_state)(module)


if __name__ == "__main__":
    main()
