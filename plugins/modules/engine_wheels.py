#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_wheels
short_description: Have the engine's wheels for a host on the controller, or say which cannot be had
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the controller alone and changes nothing on a host, so that a wheel that does not exist for a target is
    named before anything changes.
  - Needs the fact C(sparkthor_node).
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
  - sparkthor.cluster.wheels
options:
  requirements:
    description: File with the lock.
    type: str
    required: true
attributes:
  check_mode:
    details: Fetches nothing in check mode and returns what is missing.
  diff_mode:
    details: The host never changes.
"""

EXAMPLES = r"""
- name: Wheels for every kind of host
  sparkthor.cluster.engine_wheels:
    requirements: "{{ engine_requirements }}"
    wheel_dir: "{{ engine_wheel_dir }}"
"""

RETURN = r"""
target:
  description: Python and machine the wheels are for.
  returned: success
  type: str
  sample: cp312-aarch64
folder:
  description: Where they lie on the controller.
  returned: success
  type: str
fetched:
  description: Pins whose wheels were fetched.
  returned: success
  type: list
  elements: str
missing:
  description: Pins without a wheel, in check mode.
  returned: success
  type: list
  elements: str
versions:
  description: Versions of ray and vllm in the lock.
  returned: success
  type: dict
"""
