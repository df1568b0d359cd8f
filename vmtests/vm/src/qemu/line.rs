//! The command line of QEMU.
use super::accel::Accel;
use crate::Arch;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What the kernel is told.
///
/// `panic=-1` with `-no-reboot` ends QEMU at a panic, and `oops=panic` makes one of an oops: the console then has it
/// all. `no_timer_check`: when the host stalls for some milliseconds at the wrong moment, the kernel would find that
/// its timer does not tick, and panic ("IO-APIC + timer doesn't work!"). A host that is busy for longer looks like a
/// lockup after 21 s; a real one outlives any deadline. `norandmaps`: QEMU before 8.0 finds what it has translated by
/// virtual address, so with random ones it translates each program and library anew whenever one starts, which is most
/// of what such a start costs. The rest saves a third of the boot under emulation: self-tests of ciphers, certificates
/// for signatures that are cut off, and the jitter generator, which measures for a while.
const PARAMETERS: &str = "panic=-1 oops=panic quiet no_timer_check norandmaps \
     rcupdate.rcu_cpu_stall_timeout=120 cryptomgr.notests=1 \
     initcall_blacklist=load_system_certificate_list,load_revocation_certificate_list,jent_mod_init";

/// What is the same for a machine that boots and for its copy that goes on from the saved state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hardware {
    pub(crate) arch: Arch,
    pub(crate) accel: Accel,
    pub(crate) memory_mib: u32,
    pub(crate) cpus: u32,
}

/// Where a machine's memory is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Memory<'a> {
    /// Nowhere else: such a machine cannot be saved.
    Own,
    /// In a file without content, which the machine writes.
    Saved(&'a Path),
    /// As a file has it; what the machine changes stays its own (`MAP_PRIVATE`). Nothing is read before it is used, so
    /// the size of the memory does not matter to the time it takes.
    CopyOf(&'a Path),
}

/// What QEMU boots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Boot<'a> {
    pub(crate) image: &'a Path,
    pub(crate) initramfs: &'a Path,
    pub(crate) parameters: &'a [String],
}

/// Everything that a saved state must agree with.
pub(crate) fn fixed(hardware: &Hardware) -> Vec<OsString> {
    let (accel, cpu) = (hardware.accel.name(), hardware.arch.cpu(hardware.accel));
    let cpus = hardware.cpus.to_string();
    let memory = format!("{}M", hardware.memory_mib);
    #[rustfmt::skip]
    let line = [
        "-accel", accel, "-cpu", cpu, "-m", &memory, "-smp", &cpus,
        "-display", "none", "-nodefaults", "-no-user-config", "-no-reboot",
        // Both are sockets that we made: no path, no race, and their end is the end of QEMU.
        "-chardev", "socket,id=qmp,fd=1", "-mon", "chardev=qmp,mode=control",
        "-chardev", "socket,id=ctl,fd=0", "-device", "virtio-serial-pci",
        "-device", "virtserialport,chardev=ctl,name=ctl",
        "-serial", "chardev:console",
    ];
    line.map(OsString::from).to_vec()
}

/// The whole line. Without `boot` the machine waits for a saved state.
pub(crate) fn line(
    hardware: &Hardware,
    memory: Memory<'_>,
    console: &Path,
    boot: Option<Boot<'_>>,
) -> Vec<OsString> {
    let mut line = Vec::new();
    let machine = hardware.arch.machine();
    match memory {
        Memory::Own => line.extend(["-M".into(), machine.into()]),
        Memory::Saved(file) | Memory::CopyOf(file) => {
            let is_shared = matches!(memory, Memory::Saved(_));
            let (size, share) = (hardware.memory_mib, if is_shared { "on" } else { "off" });
            let ram = format!("memory-backend-file,id=ram,size={size}M,share={share},mem-path=");
            line.extend(["-M".into(), format!("{machine},memory-backend=ram").into()]);
            line.extend(["-object".into(), option(&ram, file)]);
        }
    }
    line.extend(["-chardev".into(), option("file,id=console,path=", console)]);
    line.extend(fixed(hardware));
    match boot {
        None => line.extend(["-incoming".into(), "defer".into()]),
        Some(boot) => {
            line.extend(["-kernel".into(), boot.image.into()]);
            line.extend(["-initrd".into(), boot.initramfs.into()]);
            let parameters = parameters(hardware.arch, boot.parameters);
            line.extend(["-append".into(), parameters.into()]);
        }
    }
    line
}

/// The kernel's command line.
pub(crate) fn parameters(arch: Arch, more: &[String]) -> String {
    let all = format!("console={} {PARAMETERS}", arch.console());
    [&[all], more].concat().join(" ")
}

/// An option that ends with a path. QEMU separates options by commas and reads two of them as one.
fn option(front: &str, path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut bytes = front.as_bytes().to_vec();
    for byte in OsStr::new(path).as_bytes() {
        bytes.push(*byte);
        if *byte == b',' {
            bytes.push(b',');
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HARDWARE: Hardware = Hardware {
        arch: Arch::Amd64,
        accel: Accel::Tcg,
        memory_mib: 512,
        cpus: 1,
    };

    fn joined(memory: Memory<'_>, boot: Option<Boot<'_>>) -> String {
        let line = line(&HARDWARE, memory, Path::new("/a,b/console"), boot);
        line.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn a_copy_has_the_hardware_of_the_machine_that_was_saved() {
        let ram = Path::new("/ram");
        let boot = Boot {
            image: Path::new("/vmlinux"),
            initramfs: Path::new("/initramfs"),
            parameters: &["ipv6.disable=1".into()],
        };
        let saved = joined(Memory::Saved(ram), Some(boot));
        let copy = joined(Memory::CopyOf(ram), None);
        let hardware = |line: &str| {
            let end = line.find("-kernel").or(line.find("-incoming")).unwrap();
            line[..end].replace("share=on", "share=off")
        };
        assert_eq!(hardware(&saved), hardware(&copy));
        assert!(saved.ends_with("jent_mod_init ipv6.disable=1"), "{saved}");
        assert!(copy.contains("share=off,mem-path=/ram") && copy.ends_with("-incoming defer"));
    }

    #[test]
    fn a_comma_in_a_path_is_not_a_separator() {
        assert!(joined(Memory::Own, None).contains("file,id=console,path=/a,,b/console"));
    }
}
