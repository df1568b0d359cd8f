//! The cost of redirection for traffic: connections, throughput, round trips and processor time, from a pod to a service, for
//! each way to redirect. The ways alternate within one run.
//!
//! A stand-in for ztunnel, in the pod or in its own namespace, copies bytes, so the ways differ only in how a connection
//! reaches it. The first row has neither rules nor proxy. Client, proxy and server are threads of this process, so its
//! processor time includes all three, and most of the kernel's work for them.

mod proxy;
mod ways;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use weir_demo::node_ambient::{Lab, Place};
use weir_netlink::route::AddressFamily;

use crate::figures;
use crate::report::{Goal, Report};
use crate::stats::{median, ratio};
use ways::Way;

/// The connections of one sample, made sequentially.
const CONNECTIONS: u32 = 400;
/// The round trips of one sample; with many parallel streams, each round trip waits for the threads of all streams.
const ROUND_TRIPS: u32 = 2_000;
const BESIDE: u32 = 100;
/// The bytes of one sample, sent by one stream or by many.
const BYTES: usize = 256 << 20;
const STREAMS: usize = 64;
/// The deadline of every operation.
const PATIENCE: Duration = Duration::from_secs(30);

/// The samples of one way, one per round.
#[derive(Default)]
struct Samples {
    /// Connections per second.
    rate: Vec<f64>,
    /// Processor time per connection in microseconds.
    connection_cpu: Vec<f64>,
    /// Round trip time in microseconds, alone and with parallel streams.
    round_trip: Vec<f64>,
    beside: Vec<f64>,
    /// Throughput in MiB per second.
    one: Vec<f64>,
    many: Vec<f64>,
    /// Processor time per GiB in milliseconds.
    one_cpu: Vec<f64>,
    many_cpu: Vec<f64>,
}

pub(crate) fn run(rounds: usize, report: &mut Report) -> Result<(), String> {
    let mounted = weir_testing::BpfFs::mount();
    let mut places = Vec::new();
    for way in ways::ALL {
        let lab = Lab::create().map_err(|e| e.to_string())?;
        match way.redirect(&lab, mounted.as_ref()) {
            Ok(()) => places.push((way, lab, Samples::default())),
            Err(why) => println!("left out: {}: {why}", way.name()),
        }
    }
    for _ in 0..rounds {
        for (way, lab, samples) in &mut places {
            sample(*way, lab, samples).map_err(|e| format!("{}: {e}", way.name()))?;
        }
    }
    tell(&places, report);
    ways::attach(report)
}

/// Processor time of this process, in microseconds.
pub(super) fn cpu() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage(2) of the own process");
    (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64
}

fn sample(way: Way, lab: &Lab, samples: &mut Samples) -> std::io::Result<()> {
    let to = SocketAddr::new(lab.service(AddressFamily::V4), 80);
    let other = |e: weir_netlink::Error| std::io::Error::other(e.to_string());
    let _server = proxy::serve(lab.netns(Place::Outside), to).map_err(other)?;
    let proxy = way.proxy().map(|place| proxy::forward(lab.netns(place)));
    let _proxy = proxy.transpose().map_err(other)?;
    let inside = lab.netns(Place::Web).run(|| -> std::io::Result<()> {
        connections(to, 20)?;
        let ((wall, cpu), count) = (
            cost(|| connections(to, CONNECTIONS))?,
            f64::from(CONNECTIONS),
        );
        samples.rate.push(count / wall);
        samples.connection_cpu.push(cpu / count);
        samples.round_trip.push(round_trips(to, ROUND_TRIPS)?);
        samples.beside.push(beside_streams(to)?);
        for (streams, rate, cpus) in [
            (1, &mut samples.one, &mut samples.one_cpu),
            (STREAMS, &mut samples.many, &mut samples.many_cpu),
        ] {
            let (wall, cpu) = cost(|| streaming(to, streams))?;
            let mib = (BYTES >> 20) as f64;
            rate.push(mib / wall);
            cpus.push(cpu / 1e3 / (mib / 1024.0));
        }
        Ok(())
    });
    inside.map_err(other)?
}

/// Returns the elapsed seconds and the processor time in microseconds.
fn cost(f: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<(f64, f64)> {
    let (before, begun) = (cpu(), Instant::now());
    f()?;
    Ok((begun.elapsed().as_secs_f64(), cpu() - before))
}

fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn connections(to: SocketAddr, count: u32) -> std::io::Result<()> {
    for _ in 0..count {
        let mut stream = connect(to)?;
        stream.write_all(&[proxy::ECHO, 1])?;
        stream.read_exact(&mut [0])?;
    }
    Ok(())
}

/// Returns the time of one round trip in microseconds.
fn round_trips(to: SocketAddr, count: u32) -> std::io::Result<f64> {
    let mut stream = connect(to)?;
    stream.write_all(&[proxy::ECHO])?;
    let begun = Instant::now();
    for _ in 0..count {
        stream.write_all(&[1; 64])?;
        stream.read_exact(&mut [0; 64])?;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(count))
}

/// Returns the time of a round trip in microseconds while other streams send at full speed.
fn beside_streams(to: SocketAddr) -> std::io::Result<f64> {
    let ends = AtomicBool::new(false);
    let begun = AtomicUsize::new(0);
    let is_done = |sent: usize| {
        // The measurement waits until each stream has sent a block.
        begun.fetch_add(usize::from(sent == 0), Ordering::SeqCst);
        sent > 0 && ends.load(Ordering::SeqCst)
    };
    std::thread::scope(|scope| {
        let send = || scope.spawn(|| send(connect(to)?, is_done));
        let threads: Vec<_> = (0..STREAMS).map(|_| send()).collect();
        let patience = Instant::now() + PATIENCE;
        while begun.load(Ordering::SeqCst) < STREAMS && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        let trip = round_trips(to, BESIDE);
        ends.store(true, Ordering::SeqCst);
        let mut ended = threads.into_iter().map(|t| t.join().expect("no panic"));
        ended.try_for_each(|sent| sent)?;
        trip
    })
}

fn streaming(to: SocketAddr, streams: usize) -> std::io::Result<()> {
    // A new thread starts in the network namespace of its creator.
    std::thread::scope(|scope| {
        let is_done = |sent: usize| sent >= BYTES / streams;
        let threads: Vec<_> = (0..streams)
            .map(|_| scope.spawn(move || send(connect(to)?, is_done)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().expect("no panic"))
    })
}

/// Sends until `is_done` accepts the number of bytes, and waits until the server has received them.
fn send(mut stream: TcpStream, is_done: impl Fn(usize) -> bool) -> std::io::Result<()> {
    stream.write_all(&[proxy::SINK])?;
    let (block, mut sent) = (vec![0; 128 << 10], 0);
    while !is_done(sent) {
        stream.write_all(&block)?;
        sent += block.len();
    }
    stream.shutdown(Shutdown::Write)?;
    stream.read_exact(&mut [0])
}

fn tell(places: &[(Way, Lab, Samples)], report: &mut Report) {
    type Of = fn(&Samples) -> &Vec<f64>;
    let columns: [(&str, Of); 7] = [
        ("1/s", |s| &s.rate),
        ("us", |s| &s.connection_cpu),
        ("us", |s| &s.round_trip),
        ("us", |s| &s.beside),
        ("MiB/s", |s| &s.one),
        ("MiB/s", |s| &s.many),
        ("ms", |s| &s.one_cpu),
    ];
    for ((column, _), (unit, of)) in figures::COLUMNS.into_iter().zip(columns) {
        Report::heading(column);
        for (way, _, samples) in places {
            report.cell(Some(column), way.name(), unit, of(samples));
        }
    }
    Report::heading("processor time for a GiB by 64 streams");
    for (way, _, samples) in places {
        report.arm(way.name(), "ms", &samples.many_cpu);
    }
    let find = |way: Way| places.iter().find(|(w, ..)| *w == way).map(|(.., s)| s);
    if let (Some(ebpf), Some(nft)) = (find(Way::Ebpf), find(Way::Nft)) {
        Report::heading("eBPF in the pod / nft in the pod");
        let rate = ratio(&ebpf.rate, &nft.rate);
        report.goal("pod: connections a second", rate, Goal::AtLeast(1.0));
        let connection = ratio(&ebpf.connection_cpu, &nft.connection_cpu);
        report.goal(
            "pod: processor time for a connection",
            connection,
            Goal::AtMost(1.0),
        );
        let stream = ratio(&ebpf.one_cpu, &nft.one_cpu);
        report.goal("pod: processor time for a GiB", stream, Goal::AtMost(1.0));
        report.fact("  MiB/s, eBPF", median(&ebpf.one));
    }
    if let (Some(ebpf), Some(rules)) = (find(Way::NodePrograms), find(Way::NodeRules)) {
        Report::heading("eBPF at the node / rules at the node");
        let rate = ratio(&ebpf.rate, &rules.rate);
        report.goal("node: connections a second", rate, Goal::AtLeast(1.0));
        let stream = ratio(&ebpf.one_cpu, &rules.one_cpu);
        report.goal("node: processor time for a GiB", stream, Goal::AtMost(1.0));
    }
}
