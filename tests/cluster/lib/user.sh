# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# The ordinary user who submits jobs: one for all instances, made when the first needs it and removed with the last, but
# only if we made it. Each instance has its own home for it.

ensure_user() {
  lock_registry
  if ! id "$test_user" >/dev/null 2>&1; then
    useradd --system --no-create-home --home-dir "$dir/home" --shell /bin/bash --user-group "$test_user" 2>"$dir/log/useradd" ||
      die 1 "useradd $test_user: $(tail -n 1 "$dir/log/useradd")"
    : >"$registry/.user"
  fi
  unlock_registry
  chown "$test_user:" "$dir/home" && chmod 755 "$dir/home" || die 1 "$dir/home cannot be given to $test_user"
}

# With the registry locked.
remove_user() {
  [ -e "$registry/.user" ] || return 0
  [ -z "$(ls "$registry")" ] || return 0
  if id "$test_user" >/dev/null 2>&1; then
    find /tmp /dev/shm -maxdepth 1 -user "$test_user" -exec rm -rf --one-file-system {} +
    userdel "$test_user" 2>/dev/null || say "user $test_user cannot be removed (has it processes?)"
  fi
  rm -f "$registry/.user"
}

as_user() { setpriv --reuid="$test_user" --regid="$test_user" --init-groups "$@"; }

# Says which folder on the way to PATH is closed to the user; nothing if the way is open.
closed_folder() {
  local path=$1 part='' step
  local -a steps
  IFS=/ read -ra steps <<<"${path#/}"
  for step in '' "${steps[@]}"; do
    [ -z "$step" ] || part=$part/$step
    [ -d "${part:-/}" ] || continue
    as_user test -x "${part:-/}" || { echo "${part:-/}"; return; }
  done
}

# Copies --stage DIR, and makes the paths below DIR point into the copy. Then checks that the user can read the plugin.
stage_files() {
  local target closed
  if [ -n "$stage" ]; then
    target=$dir/stage/${stage##*/}
    mkdir -p "$dir/stage"
    cp -rL "$stage" "$target" || die 1 "--stage: $stage cannot be copied"
    chmod -R a+rX "$dir/stage"
    agent=${agent/#"$stage"/$target}
    plugin=${plugin/#"$stage"/$target}
    printf '%s=%q\n' agent "$agent" plugin "$plugin" >>"$registry/$name"
  fi
  [ -n "$plugin" ] || return 0
  as_user test -r "$plugin" && return 0
  closed=$(closed_folder "$plugin")
  die 1 "$plugin: user $test_user cannot read it${closed:+: $closed is closed}; open it, or use --stage ${plugin%/*}"
}

exec_as_user() {
  local folder=$PWD closed program=$1
  closed=$(closed_folder "$folder")
  if [ -n "$closed" ]; then
    say "user $test_user cannot enter $folder ($closed is closed): running in $dir/home"
    folder=$dir/home
  fi
  if [[ $program == */* ]] && closed=$(closed_folder "$(readlink -m "$program")") && [ -n "$closed" ]; then
    die 1 "$program: user $test_user cannot reach it: $closed is closed; mini-slurm up --stage DIR copies a folder"
  fi
  eval "$(print_environment)"
  export MINI_SLURM_INSTANCE=$dir HOME=$dir/home USER=$test_user LOGNAME=$test_user SHELL=/bin/bash
  exec setpriv --reuid="$test_user" --regid="$test_user" --init-groups env -C "$folder" "$@"
}
