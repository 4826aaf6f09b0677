//! Passes connections on. It can end one of them for the client while the server still believes in it, and deliver then what the
//! client has sent before.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

pub(crate) struct HalfBroken {
    pub(crate) port: u16,
    lines: Arc<Mutex<Vec<Line>>>,
}

struct Line {
    passing: [AbortHandle; 2],
    /// It stays open here, so that the server sees no end.
    to_server: Arc<TcpStream>,
    kept: Kept,
}

/// The bytes for the server, while they are kept.
type Kept = Arc<Mutex<Option<Vec<u8>>>>;

impl HalfBroken {
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, lines) = (listener.local_addr().unwrap().port(), Arc::<Mutex<Vec<Line>>>::default());
        let opened = lines.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (client, to_server) = (Arc::new(client), Arc::new(TcpStream::connect(server).await.unwrap()));
                let kept = Kept::default();
                let passing = [
                    tokio::spawn(pass(client.clone(), to_server.clone(), kept.clone())).abort_handle(),
                    tokio::spawn(pass(to_server.clone(), client, Kept::default())).abort_handle(),
                ];
                opened.lock().unwrap().push(Line { passing, to_server, kept });
            }
        });
        Self { port, lines }
    }

    /// How many connections there were.
    pub(crate) fn lines(&self) -> usize {
        self.lines.lock().unwrap().len()
    }

    /// Breaks the connection of this number for the client.
    pub(crate) fn break_off(&self, line: usize) {
        self.lines.lock().unwrap()[line].passing.iter().for_each(AbortHandle::abort);
    }

    pub(crate) fn keep(&self, line: usize) {
        self.lines.lock().unwrap()[line].kept.lock().unwrap().get_or_insert_default();
    }

    pub(crate) fn keeps_some(&self, line: usize) -> bool {
        self.lines.lock().unwrap()[line].kept.lock().unwrap().as_ref().is_some_and(|kept| !kept.is_empty())
    }

    /// Delivers what the connection keeps. The server may have ended it.
    pub(crate) async fn deliver(&self, line: usize) {
        let (to_server, bytes) = {
            let lines = self.lines.lock().unwrap();
            let bytes = lines[line].kept.lock().unwrap().take().unwrap();
            (lines[line].to_server.clone(), bytes)
        };
        let _ = write(&to_server, &bytes).await;
    }
}

async fn pass(from: Arc<TcpStream>, to: Arc<TcpStream>, kept: Kept) {
    let mut buffer = [0; 4096];
    loop {
        from.readable().await.unwrap();
        let length = match from.try_read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) | Ok(0) => return,
            Ok(length) => length,
        };
        let is_kept = kept.lock().unwrap().as_mut().map(|kept| kept.extend_from_slice(&buffer[..length])).is_some();
        if !is_kept && write(&to, &buffer[..length]).await.is_err() {
            return;
        }
    }
}

async fn write(to: &TcpStream, mut left: &[u8]) -> std::io::Result<()> {
    while !left.is_empty() {
        to.writable().await?;
        match to.try_write(left) {
            Ok(written) => left = &left[written..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
