#!/usr/bin/env bash
# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# tools/debian_packages.sh FOLDER SUITE PACKAGE...: unpack packages of another Debian below a folder; none is installed.
set -euo pipefail

root=$(realpath -m "$1")
suite=$2
shift 2
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state"/{lists/partial,cache/archives/partial,debs} "$root"
touch "$state/status"
# from where this machine's own packages come; grep fails where all of these are for security, or there is none, and
# the next line says what is missing
mirror=$(apt-get indextargets --format '$(SITE)' | sort -u | { grep -v security || true; } | head -1)
echo "deb ${mirror:?apt has no source of packages} $suite main" >"$state/sources.list"
options=(-qq -o "Dir::State::lists=$state/lists" -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache"
  -o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root
  -o Acquire::Languages=none)
apt-get "${options[@]}" update
(cd "$state/debs" && apt-get "${options[@]}" download "$@")
for package in "$state"/debs/*.deb; do
  dpkg-deb -x "$package" "$root"
done
