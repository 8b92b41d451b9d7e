# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    # Of a module that is promised to nobody but the roles and playbooks (docs/site/versions.md).
    DOCUMENTATION = r"""
options: {}
notes:
  - This module serves the roles and playbooks of the collection. Its options and answers may change with any version.
"""
