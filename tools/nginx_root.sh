#!/usr/bin/env bash
# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# tools/nginx_root.sh FOLDER [SUITE]: nginx and njs of another Debian, unpacked with their libraries. Nothing is
# installed. The tests take them by NGINX_ROOT=FOLDER tools/test.sh nginx.
set -euo pipefail

root=$(realpath -m "${1:?a folder}")
"$(dirname "$0")/debian_packages.sh" "$root" "${2:-trixie}" nginx libnginx-mod-http-js libquickjs libc6 libcrypt1 \
  libpcre2-8-0 libssl3t64 zlib1g libzstd1 libxml2 libxslt1.1 liblzma5 libgcrypt20 libgpg-error0

# with its own loader, under the name by which the tests find the process
libraries=$(dirname "$(ls "$root"/usr/lib/*/libc.so.6)")
mv "$root/usr/sbin/nginx" "$root/usr/sbin/nginx.real"
cp "$libraries"/ld-linux-*.so.* "$root/usr/lib/nginx/nginx"
printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' \
  "$root/usr/lib/nginx/nginx" "$libraries" "$root/usr/sbin/nginx.real" >"$root/usr/sbin/nginx"
chmod +x "$root/usr/sbin/nginx"
"$root/usr/sbin/nginx" -v
