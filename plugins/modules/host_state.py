#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_state
short_description: Declare the accounts, files, links, sysctls and units of a host in one call
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - One task declares everything a role wants on a host. Each Ansible task costs about 0.1 s of controller time and up
    to a second of the host's, so one call replaces dozens.
  - The order is groups, users, directories, files, links, absent and restored paths, sysctls, C(daemon-reload), unit
    enablement, unit state. A unit that is to be stopped or disabled is handled before the files change.
  - C(systemctl daemon-reload) happens only if a unit file changed in this call or systemd says that a named unit needs
    it, because a reload can strip running containers of their GPUs.
  - A file is written under another name, with owner and mode, and then renamed.
  - Check mode makes the same decisions as a real run. A unit, user or group that the same call would create counts as
    created.
  - File contents are not written to the system log and are left out of the returned invocation.
  - Every item of a list may carry C(when), a switch or a list of switches that must all be on. An item that is
    switched off is left out.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
  - sparkthor.cluster.attributes.action
options:
  state:
    description:
      - V(present) puts on the host what the lists say.
      - V(absent) takes all of it back, whatever the switches say. Files and links become what they were before, sysctls
        get their former values, units that the lists bring are stopped and disabled, and other units get back the
        state in which they were found. Accounts stay, and directories without C(own).
    type: str
    choices: [present, absent]
    default: present
  groups:
    description: Groups that must exist.
    type: list
    elements: dict
    default: []
    suboptions:
      when:
        description: Whether this item is wanted; it is if nothing is said.
        type: raw
      name:
        description: Name of the group.
        type: str
        required: true
      system:
        description: Whether a new group gets a system id.
        type: bool
        default: true
  users:
    description: Users that must exist.
    type: list
    elements: dict
    default: []
    suboptions:
      when:
        description: Whether this item is wanted; it is if nothing is said.
        type: raw
      name:
        description: Name of the user. A group of the same name becomes the primary group of a new user.
        type: str
        required: true
      system:
        description: Whether a new user gets a system id.
        type: bool
        default: true
      groups:
        description:
          - Supplementary groups, added to those the user has. A group that neither exists on the host nor is declared
            here is left out and returned in RV(skipped_groups).
        type: list
        elements: str
        default: []
      home:
        description: Home directory. It is not created. A new user without it gets C(/nonexistent).
        type: str
      shell:
        description: Login shell. A new user without it gets C(/usr/sbin/nologin).
        type: str
  directories:
    description: Directories that must exist. Missing parents are made with owner root and mode 0755.
    type: list
    elements: dict
    default: []
    suboptions:
      when:
        description: Whether this item is wanted; it is if nothing is said.
        type: raw
      path:
        description: Absolute path. A link to a directory is taken as the directory.
        type: path
        required: true
      owner:
        description: Owner.
        type: str
        default: root
      group:
        description: Group. The owner's name if not given.
        type: str
      mode:
        description: Four octal digits, in quotes.
        type: str
        default: '0755'
      own:
        description:
          - Whether O(state=absent) removes the directory with all that is in it; with V(made) only where it was not
            there before.
        type: raw
  files:
    description: Files with their whole content. Missing parents are made with owner root and mode 0755.
    type: list
    elements: dict
    default: []
    suboptions:
      when:
        description: Whether this item is wanted; it is if nothing is said.
        type: raw
      path:
        description: Absolute path.
        type: path
        required: true
      content:
        description:
          - The whole content. Give one of O(files[].content), O(files[].template), O(files[].src),
            O(files[].from_secret) and O(files[].programs).
        type: str
      template:
        description: Name of a template of the role, rendered as M(ansible.builtin.template) does it.
        type: str
      src:
        description: Name of a file of the role, taken as it is.
        type: str
      from_secret:
        description:
          - Name of a secret of the role. The lookup P(sparkthor.cluster.role_secret#lookup) reads it when the file is
            compared or written.
          - It implies O(files[].secret), and M(sparkthor.cluster.render_files) leaves the file out.
        type: str
      own:
        description: Whether O(state=absent) removes the file even if it lacks the line C(Ansible managed).
        type: bool
      programs:
        description:
          - Whether the item stands for all files of the programs that hosts run without Ansible, in the folder
            O(files[].path).
        type: bool
      kept:
        description: Whether playbooks/rollback.yml brings the file back.
        type: bool
      restarts:
        description: Whether a running engine was started with the file, so that another content means a restart of it.
        type: bool
      owner:
        description: Owner.
        type: str
        default: root
      group:
        description: Group. The owner's name if not given.
        type: str
      mode:
        description: Four octal digits, in quotes. V(0644), or V(0600) for a secret.
        type: str
      secret:
        description: The content appears neither in the diff nor in any result. Use it instead of C(no_log).
        type: bool
        default: false
      foreign:
        description:
          - What to do with a file that lacks the line C(Ansible managed) of this collection in its first five lines.
          - V(replace) replaces it. V(refuse) fails and names it. V(adopt) leaves it alone if only comments and blank
            lines differ, and fails otherwise.
          - A file whose new content has no such line is always replaced.
        type: str
        choices: [replace, refuse, adopt]
        default: replace
      backup:
        description: Whether a replaced foreign file is kept once as C(<path>.sparkthor-orig).
        type: bool
        default: true
  links:
    description: Symbolic links. A link that leads to the same place by another path is left alone.
    type: list
    elements: dict
    default: []
    suboptions:
      when:
        description: Whether this item is wanted; it is if nothing is said.
        type: raw
      path:
        description: Absolute path of the link.
        type: path
        required: true
      target:
        description: What it points to.
        type: str
        required: true
  absent:
    description: Paths that must not exist. Directories go with their content; system directories are refused.
    type: list
    elements: path
    default: []
  restore:
    description:
      - Absolute paths, sysctl keys or unit names to restore. A file that this module replaced gets its former content,
        a file of ours is removed, and a foreign one is left alone. A sysctl gets its former run-time value. A unit that
        this module masked is unmasked, and started if it ran before.
      - An item may also be a mapping of C(names), a list, and C(when).
      - What is also named in O(files) or O(units) is not restored.
    type: list
    elements: raw
    default: []
  sysctls:
    description: Run-time kernel parameters. To keep them after a reboot, add a file under C(/etc/sysctl.d).
    type: list
    elements: dict
    default: []
    suboptions:
      when:
        description: Whether this item is wanted; it is if nothing is said.
        type: raw
      name:
        description: Name of the parameter.
        type: str
        required: true
      value:
        description: Its value.
        type: str
        required: true
  units:
    description: systemd units. A name without a type is a service.
    type: list
    elements: dict
    default: []
    suboptions:
      when:
        description: Whether this item is wanted; it is if nothing is said.
        type: raw
      name:
        description: Name of the unit; aliases are resolved by systemd. Give it or O(units[].names).
        type: str
      names:
        description: Names of several units for which the rest of the item holds.
        type: list
        elements: str
      enabled:
        description: Whether it starts at boot.
        type: bool
      masked:
        description: Whether it is masked. A running unit, other than a target, is stopped when it is masked.
        type: bool
      state:
        description: V(restarted) and V(reloaded) act on every call; prefer O(units[].restart_on).
        type: str
        choices: [started, stopped, restarted, reloaded]
      restart_on:
        description:
          - Paths, or directories of paths. If one of them changes in this call and the unit runs, it is restarted.
          - A restart that an interrupted call did not make is made now.
        type: list
        elements: str
        default: []
      reload_on:
        description: As O(units[].restart_on), with a reload.
        type: list
        elements: str
        default: []
      environment:
        description:
          - Variables that the unit's main process must have been started with. If it runs with other values, it is
            restarted.
        type: dict
        default: {}
      program_from:
        description:
          - Folder, or a link to one, that the program of the unit's main process, the first word of its command line,
            must lie in. If it lies in another one, the unit is restarted.
          - A link that changes in this call is not seen. Name it in O(units[].restart_on) as well.
        type: path
      optional:
        description:
          - Whether it is no error if the host does not have the unit, has it masked, or does not start it because a
            condition of the unit is not met.
        type: bool
        default: false
      spare_desktop:
        description:
          - With O(units[].state=stopped), whether to leave a running unit as it is, with a warning, while somebody has
            a graphical session on the host.
        type: bool
        default: false
      no_block:
        description: Whether to ask systemd for the change of state without waiting for its end.
        type: bool
        default: false
      defer:
        description:
          - Whether to leave the unit as it is, and to return in RV(deferred_units) what would be done to it. A later
            call without this option makes the restart. So the files of all hosts can be written before the first unit
            of any host is touched.
        type: bool
        default: false
  only:
    description:
      - Paths, folders and names of units. Of O(files) and O(units) only these are brought to the host, and nothing of
        the other lists.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that one command on the host may take.
    type: int
    default: 300
"""

EXAMPLES = r"""
- name: A service with its user, its configuration and its unit
  sparkthor.cluster.host_state:
    users:
      - name: sparkthor
        groups: [video, render]
        home: /var/lib/sparkthor
    directories:
      - path: /var/lib/sparkthor
        owner: sparkthor
        mode: '0750'
    files:
      - path: /etc/sparkthor/example.conf
        template: example.conf.j2
        when: "{{ example_configured }}"
      - path: /etc/systemd/system/example.service
        template: example.service.j2
    units:
      - name: example.service
        enabled: true
        state: started
        restart_on:
          - /etc/sparkthor/example.conf
          - /etc/systemd/system/example.service

- name: Swap as little as possible, now and after a reboot
  sparkthor.cluster.host_state:
    files:
      - path: /etc/sysctl.d/60-example.conf
        content: |
          # Ansible managed: sparkthor.cluster
          vm.swappiness = 1
    sysctls:
      - {name: vm.swappiness, value: 1}

- name: Undo
  sparkthor.cluster.host_state:
    units:
      - name: example.service
        enabled: false
        state: stopped
    restore:
      - /etc/sysctl.d/60-example.conf
      - vm.swappiness
"""

RETURN = r"""
changed_paths:
  description: Paths that were, or in check mode would be, made, changed or removed.
  returned: always
  type: list
  elements: str
changed_units:
  description: Units whose enablement or state changed.
  returned: always
  type: list
  elements: str
restarted_units:
  description: Units among them that were restarted.
  returned: always
  type: list
  elements: str
deferred_units:
  description: What is to be done to units with O(units[].defer), V(start), V(restart), V(reload), V(stop) or V(enable).
  returned: always
  type: dict
  sample: {example.service: restart}
changed_sysctls:
  description: Kernel parameters whose run-time value changed.
  returned: always
  type: list
  elements: str
changed_accounts:
  description: Users and groups that were made or changed.
  returned: always
  type: list
  elements: str
skipped_groups:
  description: Supplementary groups that this host does not have.
  returned: always
  type: list
  elements: str
daemon_reloaded:
  description: Whether systemd read its units again.
  returned: always
  type: bool
units:
  description: State of every named unit after the call; in check mode, before it.
  returned: always
  type: dict
  sample:
    example.service:
      active: active
      sub: running
      enabled: enabled
      load: loaded
      main_pid: 1234
      need_daemon_reload: false
"""

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.arguments import argument_spec
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Host
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.quiet import QuietModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.state import HostState
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import HostStateError, Wanted
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited


def redacted(params: dict[str, Any]) -> dict[str, Any]:
    """The invocation as it may be shown: which files, not what is in them."""
    files = [dict(item, content=f"({len(item['content'])} characters)") for item in params["files"]]
    return {"module_args": dict(params, files=files)}


def main() -> None:
    module = QuietModule(argument_spec=argument_spec(), supports_check_mode=True)
    for item in module.params["files"]:
        if item["secret"]:
            # Should a secret reach a message after all, it is masked there
            module.no_log_values.update(text for text in (item["content"], item["content"].strip()) if len(text) > 7)
    invocation = redacted(module.params)
    try:
        host = Host(run=run_limited, timeout=module.params["timeout"])
        result = HostState(Wanted.parse(module.params), host, module.check_mode).run()
    except HostStateError as error:
        module.fail_json(msg=str(error), invocation=invocation)
    for warning in result.warnings:
        module.warn(warning)
    module.exit_json(
        changed=result.changed,
        diff=result.diff,
        changed_paths=result.changed_paths,
        changed_units=result.changed_units,
        restarted_units=result.restarted_units,
        deferred_units=result.deferred_units,
        changed_sysctls=result.changed_sysctls,
        changed_accounts=result.changed_accounts,
        skipped_groups=result.skipped_groups,
        daemon_reloaded=result.daemon_reloaded,
        units=result.units,
        invocation=invocation,
    )


if __name__ == "__main__":
    main()
