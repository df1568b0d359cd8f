//! A program that stands for ztunnel's: the stand-in with its listeners, its readiness and its configuration dump. It shows that the
//! tests of [`Program`](super::Program) work where the real one is missing.

use super::{State, Ztunnel};
use crate::TempDir;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The variable that the script sets.
const SOCKET: &str = "WEIR_STANDS_FOR_ZTUNNEL";

/// Writes a program that runs this test program as a stand-in; `test` is the name of a test that calls [`stands_for_ztunnel`]. The
/// program accepts no other arguments and environment than ztunnel without a control plane.
pub(super) fn script(dir: &TempDir, test: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let text = format!(
        "[ \"$*\" = 'proxy ztunnel' ] && [ \"$PROXY_MODE\" = shared ] || exit 64\n\
         [ \"${{XDS_ADDRESS-unset}}\" = '' ] && [ -n \"$INPOD_UDS\" ] || exit 65\n\
         {SOCKET}=\"$INPOD_UDS\" exec {} --exact {test} --nocapture\n",
        own.display()
    );
    dir.script("ztunnel", &text)
}

/// In the program of [`programs`](super::programs) this runs until it is killed, or ends with status 1 as ztunnel does; in a test it
/// returns at once.
pub fn stands_for_ztunnel() {
    let Some(socket) = std::env::var_os(SOCKET) else {
        return;
    };
    let ztunnel = Ztunnel::listening(Path::new(&socket));
    let serve = |at: &str, page: fn(&State) -> (u16, String)| {
        let (listener, state) = (TcpListener::bind(at).unwrap(), Arc::clone(&ztunnel.state));
        std::thread::spawn(move || {
            let answered = |stream| answer(stream, &state, page);
            listener.incoming().flatten().for_each(answered);
        });
    };
    serve("[::]:15021", ready);
    serve("127.0.0.1:15000", dump);
    loop {
        let state = ztunnel.state();
        if state.ended && !state.connected {
            std::process::exit(1);
        }
        drop(state);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<State>, page: fn(&State) -> (u16, String)) {
    let mut reader = BufReader::new(&stream);
    let mut line = String::from("-");
    // The request ends with an empty line.
    while !line.trim().is_empty() {
        line.clear();
        if reader.read_line(&mut line).is_err() {
            return;
        }
    }
    let (status, body) = page(&state.lock().unwrap());
    // The client may have gone.
    let _ = write!(stream, "HTTP/1.0 {status} -\r\n\r\n{body}");
}

fn ready(state: &State) -> (u16, String) {
    match state.connected && state.complete {
        true => (200, String::new()),
        false => (500, "not ready, pending: workload proxy manager".to_owned()),
    }
}

fn dump(state: &State) -> (u16, String) {
    let all = state.pods.iter().map(|(uid, pod)| {
        let (namespace, name) = pod.name.split_once('/').unwrap();
        let info = json!({
            "name": name, "namespace": namespace, "serviceAccount": pod.service_account,
        });
        let workload = json!({"state": "Up", "info": info, "connections": {}});
        (uid.clone(), workload)
    });
    let all: Value = all.collect::<serde_json::Map<_, _>>().into();
    (200, json!({"workloadState": all}).to_string())
}
