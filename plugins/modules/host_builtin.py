#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_builtin
short_description: Run a module of ansible.builtin on a host, and let its answer set no variable
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The answer of any module may carry facts, and facts outrank the inventory wherever C(inject_facts_as_vars) has its
    default. This module passes on what the other one answers, without facts and without anything else that Ansible
    itself obeys.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.action
options:
  module:
    description: The name in C(ansible.builtin), without that.
    type: str
    required: true
  arguments:
    description: Its arguments.
    type: dict
    default: {}
attributes:
  check_mode:
    support: partial
    details: As the other module does.
  diff_mode:
    support: partial
    details: As the other module does.
"""

EXAMPLES = r"""
- name: Read a file
  sparkthor.cluster.host_builtin:
    module: slurp
    arguments:
      src: /etc/hostname
"""

# What the other module returns.
RETURN = r""" # """

# The work is done by the action plugin of the same name, on the controller.
