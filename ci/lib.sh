# What the scripts in this folder share; they source it. Not a command.
# shellcheck shell=bash

set -euo pipefail
called=$(realpath "$0")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Prints the header of the script, which is its help.
usage() {
    sed -n '2,/^source/s/^# \{0,1\}//p' "$called"
}
case $(basename "$called"):${1:-} in
matrix:*) ;; # which adds the options of its program
*:--help | *:-h)
    usage
    exit
    ;;
esac

# rustup wants the toolchain of rust-toolchain.toml by that name, and downloads it where it is missing. If "stable" is
# the same version, it serves: a machine without a network then works, too.
use_installed_toolchain() {
    local wanted
    command -v rustup >/dev/null && [ -z "${RUSTUP_TOOLCHAIN:-}" ] || return 0
    wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    if ! rustup toolchain list | grep -q "^$wanted-" &&
        [[ $(RUSTUP_TOOLCHAIN=stable rustc --version 2>/dev/null) == "rustc $wanted "* ]]; then
        export RUSTUP_TOOLCHAIN=stable
    fi
}
use_installed_toolchain

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

# The packages that can be built here, as arguments of cargo. The oracle links C libraries: without them the rest is tested.
testable_members() {
    local oracle=weir-netfilter-oracle
    echo --workspace
    if ! pkg-config --exists libnftnl libmnl; then
        echo "skipped: $oracle: needs libnftnl-dev and libmnl-dev, which ci/deps installs as root" >&2
        printf '%s\n' --exclude "$oracle"
    fi
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
# relocation-model: programs that start once for each pod. More than half of the page faults of a start were for
# moving a program to the address that the kernel chose (weir --version: 110, and 54 without), a twentieth of the time
# of a whole "weir apply". Stack, heap and mappings are still where nobody knows beforehand; the code is not, as in
# programs of Go. What that would help against is a program whose memory is corrupted, and this is safe Rust but
# for netlink::sys, the crate of bpf(2), which the plugin does not link, and the cryptography of TLS.
#
# static.ld: without unwind tables, a tenth of the program. The path is relative: cargo links in the folder of the
# workspace, and an absolute one would make the build depend on where that is.
#
# strip: cargo strips only debug information of a package that has settings of its own in a profile.
#
# icf: functions with the same code become one, 31 kB of the plugin. LLD does it, which rustc brings and takes for this
# triple; GNU ld has no such option.
#
# getrandom_backend: a static glibc binary does not find the libc function at run
# time and falls back to /dev/urandom, which an empty root does not have.
static_cargo() {
    local triple subcommand=$1 icf=
    triple=$(host_triple)
    shift
    [ "$triple" != x86_64-unknown-linux-gnu ] || icf="'-C', 'link-arg=-Wl,--icf=all',"
    # RUSTFLAGS in the environment would silently replace ours.
    env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS cargo "$subcommand" --locked --release \
        --target "$triple" --config "target.$triple.rustflags=[
            '-C', 'target-feature=+crt-static', '-C', 'relocation-model=static', '-C', 'link-arg=-Wl,-T,ci/static.ld', '-C', 'strip=symbols', $icf
            '--cfg', 'getrandom_backend=\"linux_getrandom\"']" "$@"
}

# vmtests ARGS...: the command weir-vmtests, the one of VMTESTS_PROGRAM where that is built already.
vmtests() {
    if [ -n "${VMTESTS_PROGRAM:-}" ]; then
        "$VMTESTS_PROGRAM" "$@"
    else
        cargo run --locked --quiet --bin weir-vmtests -- "$@"
    fi
}

# packages ARGS...: what "weir-vmtests packages" extracts. The archive is the one that this machine uses already;
# WEIR_DEBIAN_ARCHIVE names another. apt only names that archive: its lists and cache have no part in it.
packages() {
    vmtests packages ${WEIR_DEBIAN_ARCHIVE:+--archive "$WEIR_DEBIAN_ARCHIVE"} "$@" >/dev/null
}

# extract_packages DIR SUITE PACKAGES...: DIR/root gets the packages of that Debian suite and all that they
# depend on, libc and its loader too, extracted and not installed.
extract_packages() {
    local dir=$1 suite=$2
    shift 2
    rm -rf "$dir"
    mkdir -p "$dir/root"
    packages --suite "$suite" --into "$dir/root" "$@"
}

# extract_source DIR SUITE PACKAGE: DIR becomes the source tree of that package as its author published it, without
# what Debian adds.
extract_source() {
    local dir=$1 suite=$2 package=$3
    rm -rf "$dir"
    packages --suite "$suite" --into "$dir" --source "$package"
}

# write_wrapper FILE ROOT LIBRARY PROGRAM [ARGS [SETUP]]: FILE becomes a command that runs PROGRAM, extracted
# below ROOT, with the loader and the libraries from there. LIBRARY is one of them that lies where most do;
# SETUP is a line of shell that comes first.
write_wrapper() {
    local file=$1 root=$2 library=$3 program=$4 arguments=${5:-} setup=${6:-:} loader
    loader=$(find "$root" -name 'ld-linux*' -not -type d | sort | head -n 1)
    library=$(dirname "$(find "$root" -name "$library" | head -n 1)")
    # libc may be in /lib where the rest is in /usr/lib.
    cat >"$file.new" <<RUN
#!/bin/sh
$setup
exec "$loader" --library-path "$library:$(dirname "$loader"):$root/lib/$(basename "$library")" "$program" $arguments "\$@"
RUN
    chmod +x "$file.new"
    mv "$file.new" "$file"
}
