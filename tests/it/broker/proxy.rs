//! A wire between clients and a broker that is slow, and can be cut.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

/// Hands connections on. A broker that is to be reached by it alone must advertise its address.
#[derive(Debug)]
pub(super) struct Proxy {
    address: SocketAddr,
    wires: Arc<Wires>,
}

#[derive(Debug)]
struct Wires {
    /// What the broker says passes at this speed.
    bytes_per_second: usize,
    broker: OnceLock<String>,
    connections: Mutex<Vec<TcpStream>>,
    is_closed: AtomicBool,
}

impl Proxy {
    /// Listens, and refuses everybody until the broker is told.
    pub(super) fn start(bytes_per_second: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let wires = Arc::new(Wires {
            bytes_per_second,
            broker: OnceLock::new(),
            connections: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        thread::spawn({
            let wires = Arc::clone(&wires);
            move || {
                while let Ok((client, _)) = listener.accept() {
                    if wires.is_closed.load(Ordering::Relaxed) {
                        return;
                    }
                    // Whoever isn't connected sees a connection that is closed.
                    let _ = wires.connect(client);
                }
            }
        });
        Self { address, wires }
    }

    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(super) fn connect_to(&self, broker: String) {
        self.wires.broker.set(broker).unwrap();
    }

    /// Cuts every connection, in the middle of whatever is being said.
    pub(super) fn cut(&self) {
        for connection in self.wires.connections.lock().unwrap().drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.wires.is_closed.store(true, Ordering::Relaxed);
        self.cut();
        // Wakes the listener, so that it sees that it is closed.
        let _ = TcpStream::connect(self.address);
    }
}

impl Wires {
    fn connect(self: &Arc<Self>, client: TcpStream) -> std::io::Result<()> {
        let Some(address) = self.broker.get() else { return Ok(()) };
        let broker = TcpStream::connect(address)?;
        let (mut from_client, mut to_broker) = (client.try_clone()?, broker.try_clone()?);
        self.connections.lock().unwrap().extend([client.try_clone()?, broker.try_clone()?]);
        thread::spawn(move || {
            let _ = std::io::copy(&mut from_client, &mut to_broker);
            let _ = to_broker.shutdown(Shutdown::Both);
        });
        let bytes_per_second = self.bytes_per_second;
        thread::spawn(move || {
            let _ = hand_on(&broker, &client, bytes_per_second);
            let _ = client.shutdown(Shutdown::Both);
        });
        Ok(())
    }
}

/// Copies drop by drop.
fn hand_on(mut from: &TcpStream, mut to: &TcpStream, bytes_per_second: usize) -> std::io::Result<()> {
    const PER_SECOND: usize = 50;
    let mut buffer = vec![0; bytes_per_second / PER_SECOND];
    loop {
        let len = from.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..len])?;
        thread::sleep(Duration::from_millis(1000 / PER_SECOND as u64));
    }
}
