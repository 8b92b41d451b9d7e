#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_parity
short_description: Fail with a table if the hosts of a play have different engines
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Compares Python, Ray, vLLM, torch and the container image in the facts C(sparkthor_engine) of all hosts of the play.
    Ray refuses a node of another version, and ranks of different versions fail in ways that do not say so.
  - Runs on the controller, once for all hosts.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options: {}
"""

EXAMPLES = r"""
- name: Check that all hosts run the same engine
  sparkthor.cluster.engine_parity:
"""

RETURN = r"""
engines:
  description: Versions by host.
  returned: success
  type: dict
"""
