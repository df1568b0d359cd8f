# Common functions of the scripts in this directory, which source it. Not a command.
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

# rustup selects the toolchain of rust-toolchain.toml by its version, and downloads it if no toolchain has that name. If the
# toolchain "stable" is the same version, it is used instead, so that machines without a network work.
use_installed_toolchain() {
    local wanted
    command -v rustup >/dev/null && [ -z "${RUSTUP_TOOLCHAIN:-}" ] || return 0
    wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    if ! rustup toolchain list | grep "^$wanted-" >/dev/null &&
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

# step NAME COMMAND...: runs the command, then prints its duration.
# If WEIR_CI_TIMES is set, also appends "seconds name" to that file.
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

# The packages that can be built on this machine, as arguments of cargo: the oracle links C libraries and is excluded
# without them.
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

# The directory of the release binaries of static_cargo.
static_dir() {
    printf '%s/%s/release\n' "$(target_dir)" "$(host_triple)"
}

# static_cargo SUBCOMMAND ARGS...: cargo for static release binaries.
#
# The flags are set here instead of in .cargo/config.toml: a build that links the
# C libraries of the oracle cannot be static, and "cargo test" reads that file.
# --target is necessary even for the host's own triple: without it the flags apply to
# the procedural macros, which are shared objects and cannot be static either.
# The output then has its own directory, so target/debug stays valid.
#
# relocation-model: the programs start once per pod. More than half of the page faults of a start came from relocating
# the program to the address that the kernel chose (weir --version: 110 page faults, 54 without), a twentieth of the time
# of a whole "weir apply". The addresses of stack, heap and mappings are still random; those of the code are not, as in
# Go programs. Random code addresses help if memory is corrupted, but this is safe Rust except for netlink::sys, the crate
# of bpf(2), which the plugin does not link, and the cryptography of TLS.
#
# static.ld: removes the unwind tables, a tenth of the program. The path is relative, since cargo links in the directory
# of the workspace; an absolute path would make the output depend on that directory.
#
# strip: for a package that has its own settings in a profile, cargo strips only debug information.
#
# icf: merges functions with identical code, which saves 31 kB of the plugin. LLD supports it, which rustc includes and
# uses for this triple; GNU ld has no such option.
#
# remap-path-prefix: messages of panics name files of crates, without the directory of the machine that builds: 8 kB of
# the plugin. The crates have to be there ("cargo fetch").
#
# getrandom_backend: a static glibc binary does not find the libc function at run
# time and falls back to /dev/urandom, which an empty root does not have.
static_cargo() {
    local triple subcommand=$1 icf='' crates remap=''
    triple=$(host_triple)
    for crates in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
        remap+="'--remap-path-prefix', '$crates=', "
    done
    shift
    [ "$triple" != x86_64-unknown-linux-gnu ] || icf="'-C', 'link-arg=-Wl,--icf=all',"
    # RUSTFLAGS in the environment would silently override ours.
    env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS cargo "$subcommand" --locked --release \
        --target "$triple" --config "target.$triple.rustflags=[
            '-C', 'target-feature=+crt-static', '-C', 'relocation-model=static', '-C', 'link-arg=-Wl,-T,ci/static.ld', '-C', 'strip=symbols', $icf $remap
            '--cfg', 'getrandom_backend=\"linux_getrandom\"']" "$@"
}

# vmtests ARGS...: runs weir-vmtests, with VMTESTS_PROGRAM an existing build of it.
vmtests() {
    if [ -n "${VMTESTS_PROGRAM:-}" ]; then
        "$VMTESTS_PROGRAM" "$@"
    else
        cargo run --locked --quiet --bin weir-vmtests -- "$@"
    fi
}

# packages ARGS...: runs "weir-vmtests packages". The archive is that of this machine's apt sources;
# WEIR_DEBIAN_ARCHIVE names another. Only the URL comes from apt; its lists and cache are not used.
packages() {
    vmtests packages ${WEIR_DEBIAN_ARCHIVE:+--archive "$WEIR_DEBIAN_ARCHIVE"} "$@" >/dev/null
}

# extract_packages DIR SUITE PACKAGES...: extracts the packages of a Debian suite and all their dependencies, including
# libc and its loader, to DIR/root without installing them.
extract_packages() {
    local dir=$1 suite=$2
    shift 2
    rm -rf "$dir"
    mkdir -p "$dir/root"
    packages --suite "$suite" --into "$dir/root" "$@"
}

# extract_source DIR SUITE PACKAGE: extracts the upstream source of a package to DIR, without Debian's changes.
extract_source() {
    local dir=$1 suite=$2 package=$3
    rm -rf "$dir"
    packages --suite "$suite" --into "$dir" --source "$package"
}

# write_wrapper FILE ROOT LIBRARY PROGRAM [ARGS [SETUP]]: writes a script FILE that runs PROGRAM, extracted
# below ROOT, with the loader and the libraries from ROOT. LIBRARY is a library in the directory of most others;
# SETUP is a line of shell that is executed first.
write_wrapper() {
    local file=$1 root=$2 library=$3 program=$4 arguments=${5:-} setup=${6:-:} loader
    loader=$(find "$root" -name 'ld-linux*' -not -type d | sort | head -n 1)
    library=$(dirname "$(find "$root" -name "$library" | head -n 1)")
    # libc may be in /lib while the others are in /usr/lib.
    cat >"$file.new" <<RUN
#!/bin/sh
$setup
exec "$loader" --library-path "$library:$(dirname "$loader"):$root/lib/$(basename "$library")" "$program" $arguments "\$@"
RUN
    chmod +x "$file.new"
    mv "$file.new" "$file"
}
