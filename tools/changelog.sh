#!/usr/bin/env bash
# Turn changelogs/fragments into CHANGELOG.rst: tools/changelog.sh VERSION [DATE]. Until the version is tagged it may be run
# again, and adds the fragments that came since.
# antsibull-changelog copies the whole collection folder, simulated disks included; so it is given the tracked files.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH
version=$1
date=${2:-$(date -u +%F)}
if git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null; then
  echo "make changelog: v$version is tagged, so its changes are told; name the next version" >&2
  exit 2
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
copy=$scratch/ansible_collections/sparkthor/cluster
mkdir -p "$copy"
git ls-files -z --cached --others --exclude-standard | xargs -0 tar -cf - --ignore-failed-read 2>/dev/null | tar -xf - -C "$copy"
(cd "$copy" && ANSIBLE_COLLECTIONS_PATH=$scratch antsibull-changelog release --update-existing --version "$version" --date "$date")
cp "$copy/CHANGELOG.rst" .
rm -rf changelogs
cp -r "$copy/changelogs" changelogs
mkdir -p changelogs/fragments
touch changelogs/fragments/.keep
