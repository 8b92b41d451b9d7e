#!/usr/bin/env bash
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What a machine with GPUs has, for the bundle that is made for it elsewhere: describe.sh FOLDER [PYTHON]
# FOLDER gets machine.txt, and the machine's own package sources with their keys. Nothing else is changed.
set -euo pipefail
out=$1 python=${2:-python3}
mkdir -p "$out"
{
  "$python" -c 'import platform, sys
print("python", "%d.%d" % sys.version_info[:2])
print("machine", platform.machine())
print("glibc", platform.libc_ver()[1])'
  nvidia-smi --query-gpu=compute_cap,name,driver_version --format=csv,noheader | sed 's/^/gpu /'
  dpkg-query -W -f 'deb ${Package} ${Version} ${Architecture} ${db:Status-Abbrev}\n'
} >"$out/machine.txt"
cp /usr/share/keyrings/*archive-keyring.gpg "$out/"
# a machine has one of the two forms, or neither: an empty file says so
cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | grep -v '^#' >"$out/sources.list" || true
cat /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -v '^#' >"$out/machine.sources" || true
echo "described in $out: $(grep -c '^deb ' "$out/machine.txt") packages, $(grep -c '^gpu ' "$out/machine.txt") GPUs"
