# What the scripts in this folder share; they source it. Not a command.
# shellcheck shell=bash

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Ends the script. An error names the input, the reason and the remedy.
die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# step NAME COMMAND...: runs the command, then prints how long it took.
# With WEIR_CI_TIMES, also adds "seconds name" to that file.
step() {
    local name=$1 start=$EPOCHREALTIME status=0
    shift
    printf '\n=== %s\n' "$name"
    "$@" || status=$?
    local seconds=$(((${EPOCHREALTIME/[.,]/} - ${start/[.,]/}) / 1000000))
    printf '=== %s: %s, %d s\n' "$name" "$([ $status = 0 ] && echo ok || echo FAILED)" "$seconds"
    [ -z "${WEIR_CI_TIMES:-}" ] || printf '%5d s  %s\n' "$seconds" "$name" >>"$WEIR_CI_TIMES"
    return "$status"
}

target_dir() {
    printf '%s\n' "${CARGO_TARGET_DIR:-target}"
}

host_triple() {
    rustc -vV | sed -n 's/^host: //p'
}

# Where static_cargo puts release binaries.
static_dir() {
    printf '%s/%s/release\n' "$(target_dir)" "$(host_triple)"
}

# static_cargo SUBCOMMAND ARGS...: cargo for static release binaries.
#
# The flags are given here and not in .cargo/config.toml: a build that links the
# C library of the oracle cannot be static, and "cargo test" reads that file.
# --target is needed even for the host's own triple: without it the flags reach
# the procedural macros, which are shared objects and cannot be static either.
# Output then has a folder of its own, so target/debug stays valid.
#
# getrandom_backend: a static glibc binary does not find the libc function at run
# time and falls back to /dev/urandom, which an empty root does not have.
static_cargo() {
    local triple subcommand=$1
    triple=$(host_triple)
    shift
    # RUSTFLAGS in the environment would silently replace ours.
    env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS cargo "$subcommand" --locked --release \
        --target "$triple" --config "target.$triple.rustflags=[
            '-C', 'target-feature=+crt-static', '--cfg', 'getrandom_backend=\"linux_getrandom\"']" "$@"
}
