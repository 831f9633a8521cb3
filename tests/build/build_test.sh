#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The build itself: nothing is built twice, what is installed is what uninstall removes, and an admin's configuration survives both.
set -u
cd "$(dirname "$0")/../.."
BUILD=$(realpath --relative-to=. "${BUILD:-build}")  # as make was given it: the dependency files hold these names
export BUILD
passed=0 failed=0
case_is() { # NAME STATUS [TEXT]
  if [ "$2" -eq 0 ]; then passed=$((passed + 1)); echo "ok   $1"; else failed=$((failed + 1)); echo "FAIL $1${3:+: $3}"; fi
}
quiet_make() { env -u MAKEFLAGS -u MAKELEVEL make --no-print-directory "$@"; }

said=$(quiet_make -q all unit-tests 2>&1)
case_is "a second make has nothing to do" $? "$said"

object=$BUILD/obj/common/hostlist.o
before=$(mktemp)
touch -r common/hostlist.h "$before"
touch common/hostlist.h
quiet_make -q "$object" 2>/dev/null
case_is "a changed header makes what includes it old" $([ $? -eq 1 ]; echo $?)
touch -r "$before" common/hostlist.h
rm -f "$before"

python3 -c "import json,sys; c=json.load(open(sys.argv[1])); assert any(e['file']=='common/job.cc' for e in c)" "$BUILD/compile_commands.json"
case_is "compile_commands.json is JSON and has common/job.cc" $?

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
said=$(quiet_make install DESTDIR="$root" PREFIX=/opt/mm SYSCONFDIR=/etc 2>&1)
case_is "make install" $? "$said"
for f in opt/mm/bin/mm-trainer opt/mm/bin/mm-run opt/mm/bin/mm-agent opt/mm/bin/mm-data opt/mm/bin/mm-ckpt opt/mm/sbin/mm-agentd \
  opt/mm/lib/slurm/spank_mm_train.so opt/mm/share/man/man1/mm-run.1 opt/mm/share/man/man8/spank_mm_train.8 opt/mm/share/man/man5/mm-train.toml.5 \
  opt/mm/share/mm-train/examples/clipart.toml opt/mm/lib/systemd/system/mm-agentd.service \
  etc/mm-train/mm-train.conf etc/slurm/plugstack.conf.d/mm-train.conf; do
  [ -s "$root/$f" ]
  case_is "installed $f" $?
done
grep -q '^optional /opt/mm/lib/slurm/spank_mm_train.so config=/etc/mm-train/mm-train.conf$' "$root/etc/slurm/plugstack.conf.d/mm-train.conf"
case_is "plugstack.conf names the installed plugin, as optional" $?
! grep -rqs '@[A-Z]*@' "$root/etc" "$root/opt/mm/lib/systemd"
case_is "no name is left unfilled" $?
[ "$("$root/opt/mm/bin/mm-run" --version)" = "$("$BUILD/mm-run" --version)" ]
case_is "an installed program runs" $?

echo '# mine' >>"$root/etc/mm-train/mm-train.conf"
quiet_make install DESTDIR="$root" PREFIX=/opt/mm SYSCONFDIR=/etc >/dev/null 2>&1
grep -q '^# mine' "$root/etc/mm-train/mm-train.conf"
case_is "installing again keeps edited configuration" $?
quiet_make uninstall DESTDIR="$root" PREFIX=/opt/mm SYSCONFDIR=/etc >/dev/null 2>&1
left=$(find "$root" -type f | sed "s#^$root/##" | sort | paste -sd' ')
case_is "uninstall leaves the configuration only" $([ "$left" = "etc/mm-train/mm-train.conf etc/slurm/plugstack.conf.d/mm-train.conf" ]; echo $?) "$left"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
