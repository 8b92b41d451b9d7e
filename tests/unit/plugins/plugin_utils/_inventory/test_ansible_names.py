# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is nearly a variable of Ansible's, and what is one of its many others."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import ansible_names


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("ansible_hosts", "ansible_host"),
        ("ansible_hots", "ansible_host"),
        ("ansible_ip", "ansible_host"),
        ("ansible_host_ip", "ansible_host"),
        ("ansible_address", "ansible_host"),
        ("ansible_usr", "ansible_user"),
        ("ansible_users", "ansible_user"),
        ("ansible_username", "ansible_user"),
        ("ansible_prot", "ansible_port"),
        ("ansible_sshport", "ansible_port"),
        ("ansible_conection", "ansible_connection"),
        ("ansible_become_pasword", "ansible_become_password"),
        ("ansible_become_passwd", "ansible_become_password"),
        ("ansible_ssh_private_keyfile", "ansible_ssh_private_key_file"),
    ],
)
def test_what_ansible_takes_no_notice_of(written: str, meant: str) -> None:
    [finding] = ansible_names.problems({"a": ["fabric_cidr", written], "b": ["ansible_host"], "c": [written]})
    assert str(finding) == (
        f"hosts a, c: {written}: Ansible has no variable of this name (did you mean '{meant}'?); correct it "
        "(a variable of your own begins with another word)"
    )


def test_what_is_ansible_s_own_or_nobody_s() -> None:
    """Its options, its magic variables, and facts that may be injected."""
    ways = "host port user password connection become_password become_pass private_key_file ssh_private_key"
    ways += " ssh_host ssh_port ssh_user ssh_pass ssh_password sudo_pass become_user become_method connection_user"
    magic = "play_hosts play_hosts_all play_batch version facts forks hostname user_id user_dir user_uid user_gid local"
    magic += " host_key_checking python_interpreter config_file inventory_sources parent_role_names distribution"
    names = [f"ansible_{name}" for name in f"{ways} {magic}".split()]
    assert ansible_names.problems({"a": [*names, "host", "prot", "my_ansible_prot"]}) == []
    assert {"ansible_become_pass", "ansible_ssh_private_key_file", "ansible_host"} <= ansible_names.known()
