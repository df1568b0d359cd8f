//! An HTTP server for files in memory, with the faults of real servers.
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// The answer to a request for a path.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Content(Vec<u8>),
    /// Announces the whole content and sends only so many bytes.
    Cut(Vec<u8>, usize),
    /// Sends half of the content, notifies the test, and waits until the client disconnects.
    Stall(Vec<u8>),
    Status(u16),
}

type Paths = Arc<Mutex<BTreeMap<String, Answer>>>;

pub(crate) struct Server {
    port: u16,
    paths: Paths,
    asked: Arc<Mutex<Vec<String>>>,
    /// Receives a message when a client has got half of an [`Answer::Stall`].
    pub(crate) stalled: Receiver<()>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let paths = Paths::default();
        let asked = Arc::default();
        let (tell, stalled) = channel();
        let shared = (Arc::clone(&paths), Arc::clone(&asked));
        // The thread ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (paths, asked) = (Arc::clone(&shared.0), Arc::clone(&shared.1));
                let tell = tell.clone();
                std::thread::spawn(move || serve(stream, &paths, &asked, &tell));
            }
        });
        Self {
            port,
            paths,
            asked,
            stalled,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/debian", self.port)
    }

    /// `path` is relative to the server's root, and has a plus where the client sends %2B.
    pub(crate) fn set(&self, path: &str, answer: Answer) {
        self.paths.lock().unwrap().insert(path.to_owned(), answer);
    }

    pub(crate) fn forget(&self, path: &str) {
        self.paths.lock().unwrap().remove(path);
    }

    /// Writes the same archive to a directory.
    pub(crate) fn copy_to(&self, folder: &Path) {
        for (path, answer) in self.paths.lock().unwrap().iter() {
            if let Answer::Content(bytes) = answer {
                let file = folder.join(path.trim_start_matches('/'));
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, bytes).unwrap();
            }
        }
    }

    /// The number of requests for paths that contain the text.
    pub(crate) fn count(&self, text: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|path| path.contains(text)).count()
    }
}

fn serve(mut stream: TcpStream, paths: &Paths, asked: &Mutex<Vec<String>>, tell: &Sender<()>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    if reader.read_line(&mut line).is_err() {
        return;
    }
    let path = line
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .replace("%2B", "+");
    while line.trim_end() != "" {
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            break;
        }
    }
    asked.lock().unwrap().push(path.clone());
    let answer = paths.lock().unwrap().get(&path).cloned();
    let head = |status: u16, length: usize| {
        format!("HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
    };
    // The client may disconnect at any time; some tests depend on that.
    let _ = match answer.unwrap_or(Answer::Status(404)) {
        Answer::Status(status) => stream.write_all(head(status, 0).as_bytes()),
        Answer::Content(bytes) => stream
            .write_all(head(200, bytes.len()).as_bytes())
            .and_then(|()| stream.write_all(&bytes)),
        Answer::Cut(bytes, end) => stream
            .write_all(head(200, bytes.len()).as_bytes())
            .and_then(|()| stream.write_all(&bytes[..end])),
        Answer::Stall(bytes) => {
            let sent = stream
                .write_all(head(200, bytes.len()).as_bytes())
                .and_then(|()| stream.write_all(&bytes[..bytes.len() / 2]));
            let _ = tell.send(());
            // Returns when the client closes the connection.
            let _ = reader.read_line(&mut line);
            sent
        }
    };
}
