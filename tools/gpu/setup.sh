#!/usr/bin/env bash
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Make a bare machine with GPUs ready from a bundle, without a network: setup.sh PART... [--python PYTHON] [--thin]
# Parts may come one by one: what came is kept in .lab/gpu, and each call does what its files are there for.
# The machine gets the Debian packages it lacks; all else stays in this checkout (.venv, .lab). With --thin the wheels
# of what its Python has already lead there, which is enough for tools.gpu.suite; `make gpu` takes whole ones.
set -euo pipefail
python=python3
whole=yes
parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --python) python=$2; shift 2 ;;
    --thin) whole=; shift ;;
    *) parts+=("$(realpath "$1")"); shift ;;
  esac
done
say() { echo "setup: $*"; }
python=$(command -v "$python") || { say "there is no such interpreter: give --python" >&2; exit 2; }
python=$(realpath -s "$python")
cd "$(dirname "$0")/../.."
top=$PWD
work=$top/.lab/gpu
for part in "${parts[@]}"; do
  [ -e "$part/python" ] || { say "$part is no part of a bundle" >&2; exit 2; }
  want=$(cat "$part/python")
  have=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  if [ "$want" != "$have" ]; then
    say "the bundle is for Python $want and $python is $have: give --python, or make a bundle for this machine" >&2
    exit 2
  fi
  mkdir -p "$work"
  cp -rlf "$part/." "$work/" 2>/dev/null || cp -rf "$part/." "$work/"
done
cd "$work"
# calls may overlap
exec 9>lock
flock 9
lacking() { cut -c67- SHA256SUMS | while read -r name; do [ -e "$name" ] || echo "$name"; done; }
# whether all files of these kinds are here, and the step that needs them has not been done
due() {
  local step=$1 kind; shift
  [ ! -e ".$step.done" ] || return 1
  for kind in "$@"; do
    grep -q " $kind/" SHA256SUMS && [ -z "$(lacking | grep "^$kind/")" ] || return 1
  done
  for kind in "$@"; do grep " $kind/" SHA256SUMS | sha256sum --quiet -c || exit 1; done
}

# no service is started: nothing here runs systemd, and policy-rc.d keeps maintainer scripts from trying
debs() {
  local policy=/usr/sbin/policy-rc.d mine=
  [ -e "$policy" ] || { mine=yes; printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod 755 "$policy"; }
  export DEBIAN_FRONTEND=noninteractive
  # a package that another one needs before it is even unpacked comes with the first round
  local round done=1
  for round in 1 2 3; do
    if dpkg --force-unsafe-io --force-confnew -i debs/*.deb; then done=0 && break; fi
  done
  [ -z "$mine" ] || rm -f "$policy"
  return $done
}
wheels() {
  local pids=() pid tree
  rm -rf packed thin && mkdir packed
  for tree in trees/*.tar.xz; do
    (mkdir -p unpacked && xz -T0 -dc "$tree" | tar -C unpacked -x &&
      "$python" -c 'import sys; sys.path.insert(0, sys.argv[1]); import wheels; wheels.pack_tree(*sys.argv[2:])' \
        "$top/tools/gpu" "unpacked/$(basename "$tree" .tar.xz)" packed) &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || return 1; done
  rm -rf unpacked
  cp -l wheels/*.whl packed/ 2>/dev/null || cp wheels/*.whl packed/
  cp -rl packed thin
  [ -z "$whole" ] || "$python" "$top/tools/gpu/wheels.py" packed lock.txt
  "$python" "$top/tools/gpu/wheels.py" thin thin.txt --thin
}
venv() {
  [ ! -x "$top/.venv/bin/ansible-playbook" ] || return 0
  local site
  /usr/bin/env "$python" -m venv --without-pip "$top/.venv"
  site=$("$top/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  "$python" -m pip --python "$top/.venv/bin/python" install -q --no-index --no-deps controller/*.whl
  echo "$top/lab" >"$site/sparklab.pth"
  mkdir -p "$site/ansible_collections/sparkthor"
  ln -sfn "$top" "$site/ansible_collections/sparkthor/cluster"
}
# packs with what the Debian packages bring
image() {
  # not beyond this script, which ends where one of them fails
  until [ -e .debs.done ] && [ -e .venv.done ]; do kill -0 $$ || return 1; sleep 0.5; done
  "$top/.venv/bin/python" "$top/tools/gpu/image.py" sglang sglang.tar
}
# the second one is for tools.gpu.suite chaos, the others for its sglang
model() {
  "$python" "$top/tools/gpu/model.py" model && "$python" "$top/tools/gpu/model.py" sure --sure &&
    "$python" "$top/tools/gpu/model.py" wide --wide && "$python" "$top/tools/gpu/model.py" wide3 --wide --three &&
    "$python" "$top/tools/gpu/model.py" broad --wide --three --broad
}

running=()
# a step with its own log, beside the others
begin() {
  local step=$1; shift
  if due "$step" "$@"; then
    ("$step"; touch ".$step.done") >"$step.log" 2>&1 &
    running+=("$step:$!")
  fi
}
[ -z "$whole" ] || [ -e lock.txt ] || rm -f .wheels.done
begin model
begin wheels trees wheels
begin debs debs
begin venv controller
begin image sglang debs controller
for one in "${running[@]}"; do
  step=${one%:*}
  wait "${one#*:}" || { tail -5 "$step.log" >&2; say "$step failed: $work/$step.log" >&2; exit 1; }
  say "$step: $(tail -1 "$step.log")"
done
missing=$(lacking | wc -l)
if [ "$missing" != 0 ]; then
  say "$missing files are in parts that are not here yet"
  exit 0
fi
say "ready after ${SECONDS} s"
