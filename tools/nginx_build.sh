#!/usr/bin/env bash
# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# tools/nginx_build.sh FOLDER NGINX NJS [OPTION...]: nginx and its JavaScript module from checkouts of their sources, with
# more options of nginx's configure. Nothing is installed. The tests take them by NGINX_ROOT=FOLDER tools/test.sh nginx.
# Needs what libpcre2-dev, libssl-dev, zlib1g-dev, libxml2-dev and libxslt1-dev bring.
set -euo pipefail

root=$(realpath -m "${1:?a folder}")
njs=$(realpath "${3:?a checkout of njs, as of its tag 0.8.2}")
cd "${2:?a checkout of nginx, as of its tag release-1.24.0}"
shift 3
auto/configure --with-compat --with-pcre-jit --with-http_ssl_module --with-http_v2_module --with-threads \
  --add-dynamic-module="$njs/nginx" "$@"
make
mkdir -p "$root/usr/sbin" "$root/usr/lib/nginx/modules"
cp objs/nginx "$root/usr/sbin/"
cp objs/ngx_http_js_module.so "$root/usr/lib/nginx/modules/"
"$root/usr/sbin/nginx" -v
