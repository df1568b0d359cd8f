# What the scripts in this folder share; they source it. Not a command.
# shellcheck shell=bash

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

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
# for netlink::sys and the cryptography of TLS.
#
# static.ld: without unwind tables, a tenth of the program. The path is relative: cargo links in the folder of the
# workspace, and an absolute one would make the build depend on where that is.
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
            '-C', 'target-feature=+crt-static', '-C', 'relocation-model=static', '-C', 'link-arg=-Wl,-T,ci/static.ld', $icf
            '--cfg', 'getrandom_backend=\"linux_getrandom\"']" "$@"
}

# The Debian archive of this machine: where its own Debian suite comes from, security updates aside.
# WEIR_DEBIAN_ARCHIVE names another.
debian_archive() {
    if [ -n "${WEIR_DEBIAN_ARCHIVE:-}" ]; then
        echo "$WEIR_DEBIAN_ARCHIVE"
        return
    fi
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sort -u | head -n 1
}

# private_apt DIR ARGS...: apt with directories of its own and an empty list of installed packages, so that it
# resolves every dependency. Made by private_archive.
private_apt() {
    local dir=$1
    shift
    apt-get -q -q -c "$dir/apt.conf" "$@"
}

# private_archive DIR SUITE [deb|deb-src]: DIR becomes what private_apt works in, with the index of the packages, or of
# the sources, of that Debian suite.
#
# They come through apt from the archive that this machine uses already: the system's apt configuration, lists and cache
# are not touched, and nothing that is installed is in the way.
private_archive() {
    local dir=$1 suite=$2 kind=${3:-deb} tool url keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    for tool in apt-get dpkg-deb; do
        command -v "$tool" >/dev/null || die "$tool is missing: this needs Debian"
    done
    [ -r "$keyring" ] || die "$keyring is missing: install debian-archive-keyring"
    url=$(debian_archive)
    [ -n "$url" ] || die "no Debian archive in the apt sources: set WEIR_DEBIAN_ARCHIVE=URL"
    rm -rf "$dir"
    mkdir -p "$dir"/{lists,cache/archives/partial,etc}
    : >"$dir/status"
    echo "$kind [arch=$(dpkg --print-architecture) signed-by=$keyring] $url $suite main" >"$dir/etc/sources.list"
    # The hooks of the machine's configuration are for the machine's cache.
    cat >"$dir/apt.conf" <<CONF
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
Dir::Etc::sourcelist "$dir/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "$dir";
Dir::State::lists "$dir/lists";
Dir::State::status "$dir/status";
Dir::Cache "$dir/cache";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
CONF
    private_apt "$dir" update || {
        echo "$suite: the archive does not have it, or cannot be reached" >&2
        return 1
    }
}

# extract_packages DIR SUITE PACKAGES...: DIR/root gets the packages of that Debian suite and all that they
# depend on, libc and its loader too, extracted and not installed.
extract_packages() {
    local dir=$1 suite=$2 deb
    shift 2
    rm -rf "$dir"
    mkdir -p "$dir/root"
    private_archive "$dir/apt" "$suite" || return 1
    private_apt "$dir/apt" --yes --download-only install "$@" || return 1
    for deb in "$dir"/apt/cache/archives/*.deb; do
        dpkg-deb -x "$deb" "$dir/root" || return 1
    done
    rm -rf "$dir/apt"
}

# extract_source DIR SUITE PACKAGE: DIR becomes the source tree of that package as its author published it, without
# what Debian adds.
extract_source() {
    local dir=$1 suite=$2 package=$3
    rm -rf "$dir"
    mkdir -p "$dir"
    private_archive "$dir.apt" "$suite" deb-src || return 1
    (cd "$dir.apt" && private_apt "$dir.apt" --download-only --tar-only source "$package") || return 1
    tar -xf "$(echo "$dir.apt"/*.orig.tar.*)" -C "$dir" --strip-components=1 || return 1
    rm -rf "$dir.apt"
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
