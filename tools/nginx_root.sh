#!/usr/bin/env bash
# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# tools/nginx_root.sh FOLDER [SUITE]: nginx and njs of another Debian, unpacked with their libraries. Nothing is
# installed. The tests take them by NGINX_ROOT=FOLDER tools/test.sh nginx.
set -euo pipefail

root=$(realpath -m "${1:?a folder}")
suite=${2:-trixie}
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state"/{lists/partial,cache/archives/partial,debs} "$root"
touch "$state/status"
# from where this machine's own packages come
mirror=$(apt-get indextargets --format '$(SITE)' | sort -u | { grep -v security || true; } | head -1)
echo "deb ${mirror:?apt has no source of packages} $suite main" >"$state/sources.list"
options=(-qq -o "Dir::State::lists=$state/lists" -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache"
  -o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root
  -o Acquire::Languages=none)
apt-get "${options[@]}" update
(
  cd "$state/debs"
  apt-get "${options[@]}" download nginx libnginx-mod-http-js libquickjs libc6 libcrypt1 libpcre2-8-0 libssl3t64 \
    zlib1g libzstd1 libxml2 libxslt1.1 liblzma5 libgcrypt20 libgpg-error0
)
for package in "$state"/debs/*.deb; do
  dpkg-deb -x "$package" "$root"
done

# with its own loader, under the name by which the tests find the process
libraries=$(dirname "$(ls "$root"/usr/lib/*/libc.so.6)")
mv "$root/usr/sbin/nginx" "$root/usr/sbin/nginx.real"
cp "$libraries"/ld-linux-*.so.* "$root/usr/lib/nginx/nginx"
printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' \
  "$root/usr/lib/nginx/nginx" "$libraries" "$root/usr/sbin/nginx.real" >"$root/usr/sbin/nginx"
chmod +x "$root/usr/sbin/nginx"
"$root/usr/sbin/nginx" -v
