# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# A test library for shell scripts. A script sources it, calls test_case for each case and expectations in it, and ends with
# `finish`, which prints "N passed, N failed" (and "N skipped") and exits 0 or 1. A case fails with its first failed
# expectation; later ones of it are still tried and told.
#
#   test_case NAME                    begins a case (and ends the one before)
#   expect_eq WANT GOT [WHAT]         equal strings
#   expect_match REGEX GOT [WHAT]     bash's [[ =~ ]]
#   expect_ok CMD...                  exit status 0; shows the output otherwise
#   expect_status STATUS CMD...       that exit status; the output is in $output
#   wait_until SECONDS CMD...         polls until CMD succeeds; fails the case at the deadline, saying what it waited for
#   skip REASON                       counts the case as skipped
#   fail TEXT                         fails it
#   at_end CMD...                     runs CMD when the script ends, however it ends; last given first

check_passed=0 check_failed=0 check_skipped=0 check_case='' check_state=''
check_at_end=()
output=''

check_end_case() {
  [ -n "$check_case" ] || return 0
  case $check_state in
    ok) check_passed=$((check_passed + 1)); printf 'ok       %s\n' "$check_case" ;;
    failed) check_failed=$((check_failed + 1)); printf 'FAILED   %s\n' "$check_case" ;;
    skipped) check_skipped=$((check_skipped + 1)) ;;
  esac
  check_case=''
}

test_case() {
  check_end_case
  check_case=$1 check_state=ok
}

# Names the line of the script that called the expectation.
fail() {
  local k=1
  while [ "${BASH_SOURCE[k]}" = "${BASH_SOURCE[0]}" ]; do k=$((k + 1)); done
  printf '%s:%s: %s: %s\n' "${BASH_SOURCE[k]}" "${BASH_LINENO[k - 1]}" "${check_case:-outside of a case}" "$1" >&2
  check_state=failed
  [ -n "$check_case" ] || check_failed=$((check_failed + 1))
  return 1
}

skip() {
  printf 'skipped  %s: %s\n' "$check_case" "$1"
  check_state=skipped
}

expect_eq() { [ "$1" = "$2" ] || fail "${3:+$3: }expected '$1', got '$2'"; }
expect_match() { [[ $2 =~ $1 ]] || fail "${3:+$3: }expected a match of '$1' in '$2'"; }

expect_status() {
  local want=$1 got=0
  shift
  output=$("$@" 2>&1) || got=$?
  [ "$got" = "$want" ] || fail "'$*' exited $got, expected $want: $output"
}
expect_ok() { expect_status 0 "$@"; }

wait_until() {
  local seconds=$1 deadline
  shift
  deadline=$((SECONDS + seconds))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt "$deadline" ] || { fail "waited $seconds s in vain for: $*"; return 1; }
    sleep 0.1
  done
}

at_end() { check_at_end=("$(printf '%q ' "$@")" "${check_at_end[@]}"); }

check_clean_up() {
  local status=$? command
  trap - EXIT
  for command in "${check_at_end[@]}"; do eval "$command"; done
  exit $status
}
trap check_clean_up EXIT
trap 'exit 130' INT TERM

finish() {
  check_end_case
  printf '%d passed, %d failed' "$check_passed" "$check_failed"
  [ "$check_skipped" = 0 ] || printf ', %d skipped' "$check_skipped"
  printf '\n'
  [ "$check_failed" = 0 ]
  exit
}
