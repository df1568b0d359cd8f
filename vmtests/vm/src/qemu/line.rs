//! The command line of QEMU.
use super::accel::Accel;
use crate::Arch;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The kernel parameters.
///
/// `panic=-1` with `-no-reboot` ends QEMU at a panic, and `oops=panic` turns an oops into a panic, so that the console
/// has the complete message. `no_timer_check`: if the host stalls for some milliseconds at a critical moment, the kernel
/// would decide that its timer does not tick and panic ("IO-APIC + timer doesn't work!").
/// `rcupdate.rcu_cpu_stall_timeout`: after the default of 21 s, a busy host looks like a stall; a real lockup exceeds any
/// deadline of a test. `norandmaps`: QEMU before 8.0 looks up translated code by virtual address, so with address space
/// randomization it would translate each program and library again at every start, which is most of the cost of a start.
/// The other parameters save a third of the boot time under emulation: they skip the self-tests of ciphers, the loading of
/// certificates for module signatures (which are removed), and the measurements of the jitter entropy generator.
const PARAMETERS: &str = "panic=-1 oops=panic quiet no_timer_check norandmaps \
     rcupdate.rcu_cpu_stall_timeout=120 cryptomgr.notests=1 \
     initcall_blacklist=load_system_certificate_list,load_revocation_certificate_list,jent_mod_init";

/// The hardware, which is the same for the machine that is saved and for those restored from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hardware {
    pub(crate) arch: Arch,
    pub(crate) accel: Accel,
    pub(crate) memory_mib: u32,
    pub(crate) cpus: u32,
}

/// The backing of a machine's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Memory<'a> {
    /// Anonymous memory: such a machine cannot be saved.
    Own,
    /// A shared file, empty at first, which receives what the machine writes.
    Saved(&'a Path),
    /// A private mapping of a file (`MAP_PRIVATE`): changes do not reach the file. Pages are read on first use, so the start
    /// does not depend on the size of the memory.
    CopyOf(&'a Path),
}

/// The files that QEMU boots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Boot<'a> {
    pub(crate) image: &'a Path,
    pub(crate) initramfs: &'a Path,
    pub(crate) parameters: &'a [String],
}

/// The arguments that must be equal for a saved state and the machines restored from it.
pub(crate) fn fixed(hardware: &Hardware) -> Vec<OsString> {
    let (accel, cpu) = (hardware.accel.name(), hardware.arch.cpu(hardware.accel));
    let cpus = hardware.cpus.to_string();
    let memory = format!("{}M", hardware.memory_mib);
    #[rustfmt::skip]
    let line = [
        "-accel", accel, "-cpu", cpu, "-m", &memory, "-smp", &cpus,
        "-display", "none", "-nodefaults", "-no-user-config", "-no-reboot",
        // Both are sockets that we created: there is no path and no race, and closing them ends QEMU.
        "-chardev", "socket,id=qmp,fd=1", "-mon", "chardev=qmp,mode=control",
        "-chardev", "socket,id=ctl,fd=0", "-device", "virtio-serial-pci",
        "-device", "virtserialport,chardev=ctl,name=ctl",
        "-serial", "chardev:console",
    ];
    line.map(OsString::from).to_vec()
}

/// The complete command line. Without `boot` the machine waits for a saved state.
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

/// An option that ends with a path. QEMU separates options by commas; a doubled comma stands for one.
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
