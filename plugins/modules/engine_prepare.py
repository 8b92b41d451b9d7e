#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_prepare
short_description: Make sure that the controller has what a host's engine is made of
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Checks on the controller what can be known there, and fetches the wheels that it lacks for this host. So a wheel
    that does not exist for a target, or that the lock does not name, is told before anything changes.
  - Of an image whose digest is recorded in C(.sparkthor-lock.json) beside the inventory it asks the host which one it
    has under that tag.
  - It needs the fact C(sparkthor_node), and is never changed.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.engine
  - sparkthor.cluster.engine.programs
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
  - sparkthor.cluster.attributes.action
options:
  runtime:
    description: What the engine is to be installed as.
    type: str
    choices: [venv, container]
    default: venv
  image:
    description: Name and tag of the image.
    type: str
    default: ''
  digest:
    description: Digest of the image.
    type: str
    default: ''
  archive:
    description: File on the controller with the image.
    type: str
    default: ''
  build:
    description: The steps that change the image, as M(sparkthor.cluster.engine_image) takes them.
    type: dict
    default: {}
  ray:
    description: Whether the image has to have Ray, or get it.
    type: bool
    default: true
attributes:
  check_mode:
    details: Wheels that the controller lacks are only named.
"""

EXAMPLES = r"""
- name: Fetch the wheels for every kind of host before any host is changed
  sparkthor.cluster.engine_prepare:
    requirements: "{{ inventory_dir }}/engine-cp312-aarch64.txt"
"""

RETURN = r"""
target:
  description: Python and machine that the wheels are for.
  returned: with O(runtime=venv), as RV(folder), RV(fetched), RV(missing) and RV(versions)
  type: str
  sample: cp312-aarch64
folder:
  description: Where the wheels lie on the controller.
  returned: as RV(target)
  type: str
fetched:
  description: Pins whose wheels were fetched.
  returned: as RV(target)
  type: list
  elements: str
missing:
  description: Pins without a wheel, in check mode.
  returned: as RV(target)
  type: list
  elements: str
versions:
  description: Versions of Ray and the engine in the lock.
  returned: as RV(target)
  type: dict
"""

# The work is done by the action plugin of the same name, on the controller.
