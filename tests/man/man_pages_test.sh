#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every page is free of mandoc's warnings; every command has a page; and the options of a command's --help (and of its verbs) are those
# of its page, both ways.
set -u
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build}
passed=0 failed=0
case_is() { # NAME STATUS [TEXT]
  if [ "$2" -eq 0 ]; then passed=$((passed + 1)); echo "ok   $1"; else failed=$((failed + 1)); echo "FAIL $1${3:+: $3}"; fi
}

for page in man/*.[1-8]; do
  warnings=$(mandoc -Tlint -Wwarning "$page" 2>&1)
  case_is "mandoc $page" $? "$warnings"
done

# The long options that a --help text offers, the verbs' own included.
help_options() { # COMMAND
  local verb
  { "$1" --help
    for verb in $("$1" --help | awk '/^(Subcommands|SUBCOMMANDS|Verbs):/ {on=1; next} on && /^  [a-z]/ {print $1} on && /^[^ ]/ {on=0}'); do
      "$1" "$verb" --help
    done
  } 2>/dev/null | awk '/^  +-/ {print $1}' | tr , '\n' | grep -oE '^--[a-z][a-z0-9-]*' | sort -u
}
page_options() { # PAGE: --name where an item or synopsis has Fl -name
  grep -oE 'Fl -[a-z][a-z0-9-]*' "$1" | sed 's/^Fl -/--/' | sort -u
}

for command in "$BUILD"/mm-*; do
  [ -x "$command" ] || continue
  name=${command##*/}
  page=$(ls man/"$name".[18] 2>/dev/null | head -1)
  case_is "$name has a page" $([ -n "$page" ]; echo $?)
  "$command" --version 2>/dev/null | grep -qE "^$name [0-9]+\.[0-9]+\.[0-9]+$"
  case_is "$name --version names itself" $?
  [ -n "$page" ] || continue
  difference=$(diff <(help_options "$command") <(page_options "$page") | grep '^[<>]' | sed 's/^</only in --help:/; s/^>/only in the page:/' | paste -sd' ')
  case_is "$name: options of --help and page agree" $([ -z "$difference" ]; echo $?) "$difference"
done
for page in man/mm-train.7 man/mm-train.conf.5 man/mm-train.toml.5 man/spank_mm_train.8; do
  case_is "$page exists" $([ -e "$page" ]; echo $?)
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
