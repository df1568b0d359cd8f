//! Which API servers the client trusts, and the error when a server closes the connection.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::TempDir;
use crate::common::api_server::{Answer, ApiServer, other_ca, write_kubeconfig};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use serde_json::Value;
use weir_cni::api::{Client, Error, Reason};
use weir_cni::plugin::KUBECONFIG;
use weir_testing::certificates;

/// A self-signed certificate for this name that is its own CA: as PEM, and as TLS server configuration.
fn self_signed(name: &str, expired: bool) -> (String, ServerConfig) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    if expired {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), certificates::server(&certificate, &key))
}

/// Requests a pod from the server on this port.
fn ask(authority: &str, port: u16) -> Result<Value, Error> {
    let dir = TempDir::new();
    write_kubeconfig(&dir, port, authority);
    let client = Client::new(&dir.path().join(KUBECONFIG)).unwrap();
    client.pod("shop", "web", Duration::from_secs(10))
}

/// The same from one that serves with this configuration.
fn ask_over_tls(authority: &str, config: ServerConfig) -> Result<Value, Error> {
    let server = ApiServer::always(Answer::Body(200, "{}".into()));
    server.encrypt_with((authority.to_owned(), config));
    let answer = ask(authority, server.port);
    assert_eq!(server.asked().len(), usize::from(answer.is_ok()));
    answer
}

#[test]
fn a_server_whose_certificate_is_its_own_authority() {
    let (pem, config) = self_signed("127.0.0.1", false);
    assert_eq!(
        ask_over_tls(&pem, config).unwrap(),
        Value::Object(Default::default())
    );
}

#[test]
fn all_else_must_hold_of_such_a_certificate() {
    let (known, _) = self_signed("127.0.0.1", false);
    let (_, unknown) = self_signed("127.0.0.1", false);
    let (other_name, of_other_name) = self_signed("10.96.0.1", false);
    let (old, expired) = self_signed("127.0.0.1", true);
    for (pem, config, words) in [
        (known, unknown, "signed by none"),
        (other_name, of_other_name, "not valid for name"),
        (old, expired, "has expired"),
    ] {
        let error = ask_over_tls(&pem, config).unwrap_err();
        assert!(matches!(error.reason, Reason::Tls(_)), "{error}");
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
}

/// Behaves like a server that is killed or has just started.
#[test]
fn a_connection_that_ends_says_nothing_about_certificates_or_rights() {
    let closed = |_| ();
    let reset = |stream: TcpStream| {
        nix::sys::socket::setsockopt(
            &stream,
            nix::sys::socket::sockopt::Linger,
            &nix::libc::linger {
                l_onoff: 1,
                l_linger: 0,
            },
        )
        .unwrap();
    };
    let read_and_closed = |mut stream: TcpStream| _ = stream.read(&mut [0; 4096]);
    let servers: [Box<dyn FnOnce(TcpStream) + Send>; 3] =
        [Box::new(closed), Box::new(reset), Box::new(read_and_closed)];
    for serve in servers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || serve(listener.accept().unwrap().0));
        let error = ask(&other_ca(), port).unwrap_err();
        server.join().unwrap();
        assert!(
            matches!(error.reason, Reason::Broken(_)),
            "{:?}",
            error.reason
        );
        let text = error.to_string();
        for word in ["certificate", "ClusterRole", "os error", "https://docs.rs"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }
}

#[test]
fn what_is_no_file_is_no_kubeconfig() {
    let dir = TempDir::new();
    let path = dir.path().join(KUBECONFIG);
    let pipe = |path: &Path| {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    };
    let link = |to: &str| {
        let to = to.to_owned();
        move |path: &Path| std::os::unix::fs::symlink(&to, path).unwrap()
    };
    let endless = |path: &Path| {
        std::fs::File::create(path)
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
    };
    let (device, dir_link) = (link("/dev/zero"), link("/"));
    type Make<'a> = &'a dyn Fn(&Path);
    let makes: [(&str, Make<'_>); 4] = [
        ("it is not a file", &pipe),
        ("it is not a file", &device),
        ("it is not a file", &dir_link),
        ("more than 4 MiB", &endless),
    ];
    for (words, make) in makes {
        make(&path);
        let begun = Instant::now();
        let error = Client::new(&path).err().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30), "{words}");
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
}
