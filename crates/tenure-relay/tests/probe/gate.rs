//! A door in front of a node that can be shut, or left so that nobody answers it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// On an address that no other test uses, so that the port is still free when it is opened again.
const HERE: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);
/// Longer than a handshake on one machine takes.
const NEVER: Duration = Duration::from_millis(300);

pub(crate) struct Gate {
    address: SocketAddr,
    node: u16,
    /// What fills the line of connections that nobody takes.
    kept: (Option<TcpListener>, Vec<TcpStream>),
}

impl Gate {
    /// Lets so many connections through; whoever comes after them is refused. It shuts before the last
    /// of them gets an answer.
    pub(crate) fn open(node: u16, many: usize) -> Gate {
        let listener = listen((HERE, 0).into(), 128);
        let address = listener.local_addr().unwrap();
        serve(listener, node, many);
        Gate { address, node, kept: (None, Vec::new()) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// After it has shut: lets everyone through again.
    pub(crate) fn open_again(&self) {
        serve(listen(self.address, 128), self.node, usize::MAX);
    }

    /// After it has shut: from now on no handshake is answered.
    pub(crate) async fn go_dark(&mut self) {
        self.kept.0 = Some(listen(self.address, 0));
        while let Ok(stream) = tokio::time::timeout(NEVER, TcpStream::connect(self.address)).await {
            self.kept.1.push(stream.unwrap());
            assert!(self.kept.1.len() < 100, "the line is never full");
        }
    }
}

fn listen(address: SocketAddr, backlog: u32) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket.listen(backlog).unwrap()
}

fn serve(listener: TcpListener, node: u16, mut left: usize) {
    tokio::spawn(async move {
        let mut listener = Some(listener);
        while let Some(open) = &listener {
            let (mut client, _) = open.accept().await.unwrap();
            left -= 1;
            if left == 0 {
                listener = None;
            }
            tokio::spawn(async move {
                let mut node = TcpStream::connect((Ipv4Addr::LOCALHOST, node)).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut node).await;
            });
        }
    });
}
