//! Successful fetches, and the use of the cache afterwards.
use crate::archive::{VERSION, kernel_files, lock, package, path, publish};
use crate::program::Program;
use crate::server::{Answer, Server};
use std::fs;
use std::process::Stdio;
use weir_vm::{Cache, Kernels, State};

fn kernels(program: &Program) -> Kernels {
    let cache = Cache::open(Some(program.cache())).unwrap();
    Kernels::open(&cache, Some(&program.lock_file())).unwrap()
}

#[test]
fn a_locked_kernel_is_fetched_once_and_then_works_without_a_network() {
    let server = Server::start();
    let text = publish(&server, VERSION, &package(&kernel_files()));
    let program = Program::new(&text);
    program
        .fetch(&server.url())
        .expect(0, &["6.1", VERSION, "fetched"]);
    assert_eq!(
        server.count("dists"),
        0,
        "the lock is enough, no index is read"
    );

    let kernel = kernels(&program).get("6.1").unwrap();
    assert_eq!(kernel.release, crate::elf::RELEASE);
    assert_eq!(kernel.package, VERSION);
    let names: Vec<_> = kernel.modules.iter().map(|m| m.name.as_str()).collect();
    // In load order, with dependencies, and without modules that are not wanted.
    assert_eq!(
        names,
        [
            "nfnetlink",
            "x_common",
            "nf_tables",
            "ip_tables",
            "iptable_nat"
        ]
    );
    assert!(kernel.modules.iter().all(|m| m.file.is_file()));

    // Nothing listens on port 1.
    program
        .fetch("http://127.0.0.1:1/debian")
        .expect(0, &["there already"]);
    // The prepared kernel is missing: it is made again from the packages.
    fs::remove_dir_all(program.cache().join("kernel")).unwrap();
    program
        .fetch("http://127.0.0.1:1/debian")
        .expect(0, &["made ready from the packages"]);
    assert_eq!(server.count(".deb"), 1);
}

#[test]
fn a_build_that_the_archive_dropped_is_replaced_by_the_newest_and_said() {
    let server = Server::start();
    publish(&server, VERSION, &package(&kernel_files()));
    let old = lock("6.1.50-1", 100, &"0".repeat(64));
    let program = Program::new(&old);
    let url = server.url();
    let locked = [
        "fetch",
        "6.1",
        "--locked",
        "--no-signature",
        "--archive",
        &url,
    ];
    program
        .run(&locked)
        .expect(3, &["6.1.50-1", "kernels.lock", "weir-vm update"]);
    program.assert_nothing_left();

    program.fetch(&url).expect(
        0,
        &["6.1.50-1 of kernels.lock is not in the archive", VERSION],
    );
    assert_eq!(
        fs::read_to_string(program.lock_file()).unwrap(),
        old,
        "the lock is not rewritten"
    );
    let kernels = kernels(&program);
    assert_eq!(kernels.get("6.1").unwrap().package, VERSION);
    program
        .fetch("http://127.0.0.1:1/debian")
        .expect(0, &["6.1.99-1 is used meanwhile", "there already"]);
    program
        .run(&["list"])
        .expect(0, &[VERSION, "not that of kernels.lock"]);
}

#[test]
fn a_cache_that_is_not_whole_is_noticed_and_mended() {
    let server = Server::start();
    let text = publish(&server, VERSION, &package(&kernel_files()));
    let program = Program::new(&text);
    program.fetch(&server.url()).expect(0, &[]);
    let kernel = kernels(&program).get("6.1").unwrap();

    fs::write(&kernel.modules[0].file, b"short").unwrap();
    let e = kernels(&program).get("6.1").unwrap_err().to_string();
    assert!(
        e.contains("not whole") && e.contains("weir-vm fetch"),
        "{e}"
    );
    program.run(&["list"]).expect(0, &["damaged"]);
    program.fetch(&server.url()).expect(0, &["made ready"]);
    assert_eq!(kernels(&program).get("6.1").unwrap(), kernel);

    // The kernel and the package are damaged: the package is downloaded again.
    fs::remove_file(&kernel.image).unwrap();
    let deb = program
        .cache()
        .join("debs")
        .join(path(VERSION).replace("pool/", ""));
    let bytes = fs::read(&deb).unwrap();
    fs::write(&deb, &bytes[..bytes.len() / 2]).unwrap();
    program
        .fetch(&server.url())
        .expect(0, &["is damaged: it is fetched again", "fetched"]);
    assert_eq!(kernels(&program).get("6.1").unwrap(), kernel);
    assert_eq!(program.names("tmp"), Vec::<String>::new());
}

#[test]
fn two_runs_at_once_share_one_download() {
    let server = Server::start();
    let text = publish(&server, VERSION, &package(&kernel_files()));
    let program = Program::new(&text);
    let url = server.url();
    let arguments = ["fetch", "6.1", "--no-signature", "--archive", &url];
    let mut runs: Vec<_> = (0..4)
        .map(|_| {
            let mut command = program.command(&arguments);
            command.stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    assert!(runs.iter_mut().all(|run| run.wait().unwrap().success()));
    assert_eq!(server.count(".deb"), 1);
    assert_eq!(program.names("kernel").len(), 1);
    assert_eq!(program.names("tmp"), Vec::<String>::new());
}

#[test]
fn variants_leave_out_what_they_say_or_refuse() {
    let server = Server::start();
    let text = publish(&server, VERSION, &package(&kernel_files()));
    let program = Program::new(&text);
    program.fetch(&server.url()).expect(0, &[]);
    let kernels = kernels(&program);
    let names = |name| {
        let kernel = kernels.get(name).unwrap();
        assert_eq!(kernel.name, name);
        let names = kernel.modules.into_iter().map(|m| m.name);
        (
            names.collect::<Vec<_>>().join(" "),
            kernel.left_out.join(" "),
        )
    };
    assert_eq!(
        names("6.1-no-xtables"),
        (
            "nfnetlink x_common nf_tables".into(),
            "ip_tables iptable_nat".into()
        )
    );
    assert_eq!(names("6.1-no-nftables").1, "nf_tables");
    assert_eq!(
        kernels.get("6.1-no-ipv6").unwrap().parameters,
        ["ipv6.disable=1"]
    );

    let refused = |name| kernels.get(name).unwrap_err().to_string();
    assert!(refused("6.1-no-ipset").contains("has none of the modules"));
    assert!(refused("6.1-no-btf").contains("CONFIG_DEBUG_INFO_BTF is not y"));
    let e = refused("6.1-no-such");
    assert!(
        e.contains("none of that name") && e.contains("no-xtables"),
        "{e}"
    );
    let e = refused("6.12");
    assert!(
        e.contains("not in the cache") && e.contains("fetch 6.12"),
        "{e}"
    );
}

#[test]
fn clean_removes_what_it_says_and_nothing_of_others() {
    let server = Server::start();
    let text = publish(&server, VERSION, &package(&kernel_files()));
    let program = Program::new(&text);
    program.fetch(&server.url()).expect(0, &[]);
    let state = program.cache().join("state/x");
    fs::create_dir_all(state.parent().unwrap()).unwrap();
    fs::write(&state, b"x").unwrap();
    program.run(&["clean", "--states"]).expect(0, &["removed"]);
    assert!(!state.exists());
    assert!(matches!(kernels(&program).status()[1].state, State::Ready));
    // The build is not in the lock that was compiled into the program.
    program.run(&["clean", "--old"]).expect(0, &[]);
    assert_eq!(program.names("kernel"), Vec::<String>::new());
    let foreign = program.cache().join("notes.txt");
    fs::write(&foreign, b"mine").unwrap();
    program.run(&["clean"]).expect(0, &[]);
    assert_eq!(program.files(), ["notes.txt"]);
    fs::remove_file(foreign).unwrap();
    program.run(&["clean"]).expect(0, &[]);
    assert!(!program.cache().exists());
}

#[test]
fn an_archive_in_a_folder() {
    let server = Server::start();
    publish(&server, VERSION, &package(&kernel_files()));
    let folder = tempfile::tempdir().unwrap();
    server.copy_to(folder.path());
    let program = Program::new("");
    let url = format!("file://{}/debian", folder.path().display());
    program.fetch(&url).expect(0, &[VERSION, "fetched"]);
}

#[test]
fn a_server_that_is_broken_is_not_taken_for_one_without_the_file() {
    let server = Server::start();
    let text = publish(&server, VERSION, &package(&kernel_files()));
    let program = Program::new(&text);
    server.set(
        &format!("/debian-security/{}", path(VERSION)),
        Answer::Status(503),
    );
    program
        .fetch(&server.url())
        .expect(3, &["the server says 503", "--archive"]);
    program.assert_nothing_left();
}
