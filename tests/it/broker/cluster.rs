//! Clusters of a test's own, whose nodes it may kill, stop, pause, and start again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

/// How long a node may take to answer: it is a program of Java, and others start beside it.
const TIME_TO_START: Duration = Duration::from_secs(90);

/// How long one request may take before it is asked again.
const REQUEST: Duration = Duration::from_secs(1);

/// One cluster lives at a time: what starts beside it takes its processors.
static TURN: Mutex<()> = Mutex::const_new(());

/// Settings of every node. A broker that was killed is missed after this time, and not before then is it taken back.
const PROPERTIES: [&str; 2] = ["broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500"];

/// Nodes 1 and so on: all of them brokers, and the first one the controller as well.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    _turn: MutexGuard<'static, ()>,
}

/// A broker with its folder and ports, running or not.
#[derive(Debug)]
struct Node {
    id: usize,
    folder: TempDir,
    port: u16,
    controller_port: u16,
    properties: Vec<String>,
    process: Option<Child>,
}

impl Cluster {
    /// Starts nodes with these properties, `KEY=VALUE`, and waits until all of them answer.
    pub(crate) async fn start(num_nodes: usize, properties: &[&str]) -> Self {
        let turn = TURN.lock().await;
        let mut ports = free_ports(num_nodes + 1);
        let controller_port = ports.pop().unwrap();
        let node = |(index, port): (usize, u16)| Node {
            id: index + 1,
            folder: tempfile::tempdir().unwrap(),
            port,
            controller_port,
            properties: PROPERTIES.iter().chain(properties).map(|property| (*property).to_owned()).collect(),
            process: None,
        };
        let nodes = ports.into_iter().enumerate().map(node).collect();
        let mut cluster = Self { nodes, _turn: turn };
        cluster.nodes.iter_mut().for_each(Node::spawn);
        cluster.wait();
        cluster
    }

    /// Every node's address.
    pub(crate) fn bootstrap(&self) -> String {
        self.nodes.iter().map(Node::address).collect::<Vec<_>>().join(",")
    }

    /// One node's address.
    pub(crate) fn address(&self, id: usize) -> String {
        self.nodes[id - 1].address()
    }

    /// Ends a node at once (SIGKILL).
    pub(crate) fn kill(&mut self, id: usize) {
        self.node(id).kill();
    }

    /// Asks a node to end, as an operator does, and waits until it has.
    pub(crate) fn stop(&mut self, id: usize) {
        let node = self.node(id);
        node.signal("TERM");
        let mut process = node.process.take().unwrap();
        let began = Instant::now();
        while process.try_wait().unwrap().is_none() {
            if began.elapsed() > TIME_TO_START {
                process.kill().unwrap();
                panic!("node {id} doesn't stop:\n{}", node.log());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a node that was ended, where it was, and waits until it answers.
    pub(crate) fn restart(&mut self, id: usize) {
        self.node(id).spawn();
        self.nodes[id - 1].wait();
    }

    /// Lets a node stand still (SIGSTOP): its connections stay, and nothing comes of them.
    pub(crate) fn pause(&self, id: usize) {
        self.nodes[id - 1].signal("STOP");
    }

    pub(crate) fn resume(&self, id: usize) {
        self.nodes[id - 1].signal("CONT");
    }

    /// The file with the first messages of a partition.
    pub(crate) fn log_segment(&self, id: usize, topic: &str, partition: i32) -> PathBuf {
        self.nodes[id - 1].folder.path().join(format!("data/{topic}-{partition}/00000000000000000000.log"))
    }

    fn node(&mut self, id: usize) -> &mut Node {
        &mut self.nodes[id - 1]
    }

    /// Waits until all nodes answer, and know each other.
    fn wait(&mut self) {
        self.nodes.iter_mut().for_each(Node::wait);
        if self.nodes.len() == 1 {
            return;
        }
        let client: BaseConsumer =
            ClientConfig::new().set("bootstrap.servers", self.nodes[0].address()).create().unwrap();
        let began = Instant::now();
        let is_whole =
            || client.fetch_metadata(None, REQUEST).is_ok_and(|known| known.brokers().len() == self.nodes.len());
        while !is_whole() {
            assert!(began.elapsed() < TIME_TO_START, "the nodes don't find each other:\n{}", self.nodes[0].log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Node {
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn spawn(&mut self) {
        assert!(self.process.is_none(), "node {} is running", self.id);
        let script = std::env::var("SEGUE_TEST_BROKER_NODE").expect("clusters want tests/broker/run cargo test …");
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        let process = Command::new(script)
            .arg(self.folder.path())
            .args([self.id.to_string(), self.port.to_string(), self.controller_port.to_string()])
            .args(&self.properties)
            // It starts in half the time, and never runs for long.
            .env("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .env("SEGUE_TEST_BROKER_HEAP", "384m")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
    }

    /// Waits until it serves requests, which a broker does once the cluster has taken it in.
    fn wait(&mut self) {
        let began = Instant::now();
        while self.ask().is_err() {
            let ended = self.process.as_mut().and_then(|process| process.try_wait().unwrap());
            assert!(ended.is_none(), "node {} ended:\n{}", self.id, self.log());
            assert!(began.elapsed() < TIME_TO_START, "node {} doesn't answer:\n{}", self.id, self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks which requests it knows (ApiVersions): 10 bytes, request 18, version 0, correlation id 7, no client id.
    fn ask(&self) -> std::io::Result<()> {
        let mut broker = TcpStream::connect(self.address())?;
        broker.set_read_timeout(Some(REQUEST))?;
        broker.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff])?;
        broker.read_exact(&mut [0; 8])
    }

    fn signal(&self, name: &str) {
        let id = self.process.as_ref().unwrap().id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap();
        assert!(sent.success(), "node {} has gone", self.id);
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Ports that nobody has, out of those that the system doesn't deal out by itself.
pub(crate) fn free_ports(num_ports: usize) -> Vec<u16> {
    use std::hash::{BuildHasher, RandomState};
    let mut ports: Vec<u16> = Vec::new();
    while ports.len() < num_ports {
        let port = 15_000 + (RandomState::new().hash_one(ports.len()) % 15_000) as u16;
        if !ports.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            ports.push(port);
        }
    }
    ports
}
