#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks Debian's Ironic, with the Python packages that it needs and the programs that it calls, into bin/ironic, for
# test/metal to run it. Nothing is installed, and nothing is changed outside of bin/. Then bin/ironic/ironic runs API and
# conductor as one process, with the system's Python, and bin/ironic/ironic-inspector the inspector; schema.sqlite and
# inspector.sqlite are empty databases to begin with. bin/ironic/ipmi_sim is OpenIPMI's simulator of a BMC, and
# bin/ironic/dnsmasq serves DHCP and TFTP.
set -euo pipefail
cd "$(dirname "$0")/.."

dir="${PWD}/bin/ironic"
stamp="${dir}/.unpacked"
# Only the dependencies that are imported in the tests, not all of Debian's.
packages=(pycadf-common python3-alembic python3-amqp python3-anyjson python3-appdirs python3-attr python3-automaton
  python3-bcrypt python3-cachetools python3-certifi python3-cffi-backend python3-chardet
  python3-charset-normalizer python3-cinderclient python3-cryptography python3-dateutil python3-debtcollector
  python3-decorator python3-dogpile.cache python3-eventlet python3-fasteners python3-futurist
  python3-glanceclient python3-greenlet python3-idna python3-ifaddr python3-importlib-metadata python3-ironic
  python3-ironic-lib python3-iso8601 python3-jaraco.classes python3-jinja2 python3-jmespath
  python3-json-pointer python3-jsonpatch python3-jsonschema python3-keyring python3-keystoneauth1
  python3-keystoneclient python3-keystonemiddleware python3-kombu python3-logutils python3-mako
  python3-markupsafe python3-monotonic python3-more-itertools python3-msgpack python3-munch python3-netaddr python3-netifaces
  python3-oauthlib python3-openssl python3-openstacksdk python3-os-service-types python3-os-traits
  python3-oslo.cache python3-oslo.concurrency python3-oslo.config python3-oslo.context python3-oslo.db
  python3-oslo.i18n python3-oslo.log python3-oslo.messaging python3-oslo.metrics python3-oslo.middleware
  python3-oslo.policy python3-oslo.serialization python3-oslo.service python3-oslo.utils
  python3-oslo.versionedobjects python3-osprofiler python3-packaging python3-paste python3-pastedeploy
  python3-pbr python3-pecan python3-pkg-resources python3-prettytable python3-prometheus-client python3-psutil
  python3-pycadf python3-pycdlib python3-pyparsing python3-pyrsistent python3-repoze.lru python3-requests
  python3-requestsexceptions python3-rfc3986 python3-routes python3-setuptools python3-simplejson python3-six
  python3-sqlalchemy python3-statsd python3-stevedore python3-sushy python3-swiftclient python3-tenacity
  python3-tooz python3-tz python3-urllib3 python3-vine python3-wcwidth python3-webob python3-wrapt python3-yaml
  python3-yappi python3-zeroconf python3-zipp
  # Parts of Python that a small Debian does not have.
  python3-distutils python3-lib2to3)
# Debian's Ironic 21.4 inspects a server behind IPMI by this one.
packages+=(python3-click python3-construct python3-flask python3-ironic-inspector python3-itsdangerous python3-jsonpath-rw
  python3-oslo.rootwrap python3-oslo.upgradecheck python3-ply python3-retrying python3-werkzeug)
# Ironic makes config drives with the first, and talks to BMCs with ipmitool. The simulator of such a BMC is in openipmi.
programs=(genisoimage libmagic1 ipmitool libfreeipmi17 libreadline8 openipmi libopenipmi0 libpopt0)
# Servers that boot by network get their addresses, and iPXE's first file, from dnsmasq.
programs+=(dnsmasq-base libbsd0 libdbus-1-3 libedit2 libgmp10 libhogweed6 libidn2-0 libjansson4 libmd0 libmnl0 libnetfilter-conntrack3 libnettle8
  libnfnetlink0 libnftables1 libnftnl11 libunistring2 libxtables12)

wanted="${packages[*]} ${programs[*]} $(sha256sum "$0" | cut -d' ' -f1)"
if [[ "$(cat "${stamp}" 2>/dev/null)" == "${wanted}" ]]; then
  exit 0
fi
for tool in apt-get dpkg-deb /usr/bin/python3; do
  if ! command -v "${tool}" >/dev/null; then
    echo "error: there is no ${tool}: the tests with a real Ironic need Debian 12, or something made of it" >&2
    exit 1
  fi
done

start=${SECONDS}
rm -rf "${dir}"
mkdir -p "${dir}/packages" "${dir}/root"
printf "unpacking Debian's Ironic into bin/ironic ... "
download() {
  (cd "${dir}/packages" && apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}" "${programs[@]}" 2>"${dir}/log")
}
# A new machine has no list of packages, or an old one.
if ! download && ! { apt-get -qq update && download; }; then
  echo failed
  cat "${dir}/log" >&2
  echo "error: Ironic cannot be downloaded from Debian" >&2
  exit 1
fi
for package in "${dir}"/packages/*.deb; do
  dpkg-deb --extract "${package}" "${dir}/root"
done
rm -rf "${dir}/packages" "${dir}/log" "${dir}/root/usr/share"
# Each Python has these two files of distutils, and would look there only, if there were none here.
cp "$(/usr/bin/python3 -W ignore -c 'import distutils; print(distutils.__path__[0])')"/{__init__,version}.py "${dir}"/root/usr/lib/python3.*/distutils/

cat >"${dir}/python" <<'SCRIPT'
#!/bin/sh
# usage: python MODULE ARGUMENT...    calls main() of the module, in the tree of unpacked packages
root=$(dirname "$(readlink -f "$0")")/root
export PYTHONPATH="$root/usr/lib/python3/dist-packages:$(echo "$root"/usr/lib/python3.*)" PATH="$root/usr/bin:$PATH"
export LD_LIBRARY_PATH="$(echo "$root"/usr/lib/*-linux-gnu):$(echo "$root"/lib/*-linux-gnu)" PYTHONDONTWRITEBYTECODE=1
# The resolver of the system, as Ironic sets it for itself: the other one needs another package.
export EVENTLET_NO_GREENDNS=yes
module=$1
shift
exec /usr/bin/python3 -W ignore -c 'import importlib, sys
module = sys.argv.pop(1)
sys.argv[0] = module
sys.exit(importlib.import_module(module).main())' "$module" "$@"
SCRIPT
cat >"${dir}/ironic" <<'SCRIPT'
#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/python" ironic.cmd.singleprocess "$@"
SCRIPT
cat >"${dir}/ironic-inspector" <<'SCRIPT'
#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/python" ironic_inspector.cmd.all "$@"
SCRIPT
# make_program PATH: a program that is not Python's
make_program() {
  cat >"${dir}/${1##*/}" <<SCRIPT
#!/bin/sh
root=\$(dirname "\$(readlink -f "\$0")")/root
export LD_LIBRARY_PATH="\$(echo "\$root"/usr/lib/*-linux-gnu):\$(echo "\$root"/lib/*-linux-gnu)"
exec "\$root/$1" "\$@"
SCRIPT
}
make_program usr/bin/ipmi_sim
make_program usr/sbin/dnsmasq
chmod +x "${dir}"/{python,ironic,ironic-inspector,ipmi_sim,dnsmasq}

# Compiled once, not at every start. Some packages have files for other versions of Python, which do not compile.
/usr/bin/python3 -m compileall -q -j 0 "${dir}/root/usr/lib/python3/dist-packages" >/dev/null 2>&1 || true
# make_database FILE MODULE COMMAND
make_database() {
  printf '[database]\nconnection = sqlite:///%s/%s\n' "${dir}" "$1" >"${dir}/schema.conf"
  if ! "${dir}/python" "$2" --config-file "${dir}/schema.conf" "$3" >"${dir}/log" 2>&1; then
    echo failed
    cat "${dir}/log" >&2
    echo "error: $2 cannot make its database; it was unpacked for $(/usr/bin/python3 --version)" >&2
    exit 1
  fi
}
make_database schema.sqlite ironic.cmd.dbsync create_schema
make_database inspector.sqlite ironic_inspector.cmd.dbsync upgrade
rm -f "${dir}/log" "${dir}/schema.conf"
printf '%s' "${wanted}" >"${stamp}"
echo "done in $((SECONDS - start))s"
