use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use super::Proxy;

const DELAY: Duration = Duration::from_millis(200);

/// A proxy to a socket at which everything that is sent comes back.
struct Echo {
    proxy: Proxy,
    folder: tempfile::TempDir,
}

impl Echo {
    fn start() -> Self {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let target = folder.path().join("target");
        let listener = UnixListener::bind(&target).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || io::copy(&mut stream.try_clone().unwrap(), &mut stream));
            }
        });
        let proxy = Proxy::start(&folder.path().join("proxy"), &target, DELAY).unwrap();
        Echo { proxy, folder }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("proxy")).unwrap()
    }
}

fn answer(stream: &mut UnixStream) -> io::Result<u8> {
    let mut byte = [0];
    stream.read_exact(&mut byte).map(|()| byte[0])
}

/// How long it takes until 1 comes back.
fn round_trip(stream: &mut UnixStream) -> Duration {
    let began = Instant::now();
    stream.write_all(&[1]).unwrap();
    assert_eq!(answer(stream).unwrap(), 1);
    began.elapsed()
}

#[test]
fn every_byte_is_delayed_each_way_and_none_waits_for_another() {
    const BYTES: u8 = 100;
    let echo = Echo::start();
    let mut stream = echo.connect();
    for _ in 0..2 {
        assert!(round_trip(&mut stream) >= 2 * DELAY);
    }
    let began = Instant::now();
    let mut sender = stream.try_clone().unwrap();
    let sent = thread::spawn(move || {
        (0..BYTES)
            .map(|byte| {
                let now = Instant::now();
                sender.write_all(&[byte]).unwrap();
                thread::sleep(Duration::from_millis(1));
                now
            })
            .collect::<Vec<_>>()
    });
    let came: Vec<Instant> = (0..BYTES)
        .map(|byte| {
            assert_eq!(answer(&mut stream).unwrap(), byte);
            Instant::now()
        })
        .collect();
    let sent = sent.join().unwrap();
    assert!(
        sent.iter()
            .zip(&came)
            .all(|(sent, came)| *came - *sent >= 2 * DELAY)
    );
    // One after the other they would take a hundred round trips: 40 s.
    assert!(began.elapsed() < DELAY * u32::from(BYTES));
}

#[test]
fn a_queue_that_is_longer_than_the_delay_arrives_whole() {
    const LENGTH: usize = 32 << 20;
    let echo = Echo::start();
    let mut stream = echo.connect();
    let mut sender = stream.try_clone().unwrap();
    let bytes: Vec<u8> = (0..LENGTH).map(|n| (n % 251) as u8).collect();
    let expected = bytes.clone();
    thread::spawn(move || sender.write_all(&bytes).unwrap());
    let mut found = vec![0; LENGTH];
    stream.read_exact(&mut found).unwrap();
    assert!(found == expected);
}

#[test]
fn nothing_passes_a_cut_line_and_all_of_it_afterwards() {
    let echo = Echo::start();
    let mut stream = echo.connect();
    round_trip(&mut stream);
    echo.proxy.cut();
    stream.write_all(&[7]).unwrap();
    stream.set_read_timeout(Some(3 * DELAY)).unwrap();
    assert!(answer(&mut stream).is_err());
    // A new connection gets no further.
    let mut second = echo.connect();
    second.write_all(&[8]).unwrap();
    second.set_read_timeout(Some(3 * DELAY)).unwrap();
    assert!(answer(&mut second).is_err());
    echo.proxy.heal();
    for (stream, byte) in [(&mut stream, 7), (&mut second, 8)] {
        stream.set_read_timeout(None).unwrap();
        assert_eq!(answer(stream).unwrap(), byte);
    }
}

#[test]
fn the_end_of_a_connection_is_delayed_too() {
    let echo = Echo::start();
    let mut stream = echo.connect();
    round_trip(&mut stream);
    let began = Instant::now();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(answer(&mut stream).is_err());
    assert!(began.elapsed() >= DELAY);
}

#[test]
fn dropped_it_breaks_its_connections_and_leaves_nothing() {
    for cut in [false, true] {
        let echo = Echo::start();
        let mut stream = echo.connect();
        round_trip(&mut stream);
        if cut {
            echo.proxy.cut();
        }
        stream.write_all(&[1]).unwrap();
        let path = echo.folder.path().join("proxy");
        drop(echo.proxy);
        assert!(answer(&mut stream).is_err());
        assert!(!path.exists());
    }
}

#[test]
fn without_a_target_a_connection_is_closed() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let path = folder.path().join("proxy");
    let proxy = Proxy::start(&path, &folder.path().join("nobody"), DELAY).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    assert!(answer(&mut stream).is_err());
    drop(proxy);
}

/// A connection for which nothing may come for now.
fn expect_nothing(stream: &mut UnixStream) {
    stream.set_read_timeout(Some(2 * DELAY)).unwrap();
    assert!(answer(stream).is_err());
    stream.set_read_timeout(None).unwrap();
}

#[test]
fn a_connection_takes_a_round_trip() {
    let echo = Echo::start();
    let began = Instant::now();
    round_trip(&mut echo.connect());
    assert!(began.elapsed() >= 4 * DELAY);
}

#[test]
fn a_new_delay_is_for_what_comes_after() {
    const HOUR: Duration = Duration::from_secs(3600);
    let echo = Echo::start();
    let mut held = echo.connect();
    round_trip(&mut held);
    echo.proxy.set_delay(HOUR);
    held.write_all(&[1]).unwrap();
    expect_nothing(&mut held);
    echo.proxy.set_delay(Duration::ZERO);
    // It waits for the byte before it, and a new connection for nothing.
    held.write_all(&[2]).unwrap();
    round_trip(&mut echo.connect());
    expect_nothing(&mut held);
    echo.proxy.set_delay(2 * DELAY);
    assert!(round_trip(&mut echo.connect()) >= 4 * DELAY);
}

#[test]
fn jitter_is_added_and_keeps_the_order() {
    const JITTER: Duration = Duration::from_millis(20);
    const BYTES: u8 = 100;
    let echo = Echo::start();
    let mut stream = echo.connect();
    round_trip(&mut stream);
    echo.proxy.set_delay(Duration::ZERO);
    echo.proxy.set_jitter(JITTER);
    let mut sender = stream.try_clone().unwrap();
    thread::spawn(move || {
        for byte in 0..BYTES {
            sender.write_all(&[byte]).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    });
    for byte in 0..BYTES {
        assert_eq!(answer(&mut stream).unwrap(), byte);
    }
    // On average each of them takes 20 ms longer.
    let total: Duration = (0..50).map(|_| round_trip(&mut stream)).sum();
    assert!(total >= 50 * JITTER / 2, "{total:?}");
}

#[test]
fn bursts_are_turns_as_the_client_sees_them() {
    let echo = Echo::start();
    let mut stream = echo.connect();
    for _ in 0..3 {
        round_trip(&mut stream);
    }
    assert_eq!(echo.proxy.bursts(), (3, 3));
    // Nothing can come between: one burst, however many chunks it is read in.
    echo.proxy.cut();
    for byte in 0..3 {
        stream.write_all(&[byte]).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    echo.proxy.heal();
    for byte in 0..3 {
        assert_eq!(answer(&mut stream).unwrap(), byte);
    }
    assert_eq!(echo.proxy.bursts(), (4, 4));
    // Each connection counts for itself.
    let mut second = echo.connect();
    echo.proxy.cut();
    stream.write_all(&[1]).unwrap();
    echo.proxy.heal();
    round_trip(&mut second);
    assert_eq!(answer(&mut stream).unwrap(), 1);
    assert_eq!(echo.proxy.bursts(), (6, 6));
    assert_eq!(echo.proxy.connections(), 2);
    echo.proxy.reset_counts();
    round_trip(&mut second);
    assert_eq!(echo.proxy.bursts(), (1, 1));
    assert_eq!(echo.proxy.connections(), 0);
}

/// What a client has sent before it died arrives, though answers to it are under way.
#[test]
fn the_last_words_of_a_dead_client_arrive_when_a_cut_line_heals() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let (near, target) = (folder.path().join("proxy"), folder.path().join("target"));
    let listener = UnixListener::bind(&target).unwrap();
    let proxy = Proxy::start(&near, &target, Duration::ZERO).unwrap();
    let mut client = UnixStream::connect(&near).unwrap();
    client.write_all(&[1]).unwrap();
    let mut server = listener.accept().unwrap().0;
    assert_eq!(answer(&mut server).unwrap(), 1);
    proxy.cut();
    server.write_all(&[2]).unwrap();
    client.write_all(&[3]).unwrap();
    drop(client);
    expect_nothing(&mut server);
    proxy.heal();
    assert_eq!(answer(&mut server).unwrap(), 3);
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
}

#[test]
fn the_last_words_of_a_server_arrive_too() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let (near, target) = (folder.path().join("proxy"), folder.path().join("target"));
    let listener = UnixListener::bind(&target).unwrap();
    let _proxy = Proxy::start(&near, &target, DELAY).unwrap();
    let mut client = UnixStream::connect(&near).unwrap();
    let mut server = listener.accept().unwrap().0;
    server.write_all(&[7]).unwrap();
    drop(server);
    client.write_all(&[1]).unwrap();
    assert_eq!(answer(&mut client).unwrap(), 7);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

#[test]
fn broken_connections_lose_what_is_under_way() {
    let echo = Echo::start();
    let mut stream = echo.connect();
    round_trip(&mut stream);
    echo.proxy.cut();
    stream.write_all(&[1]).unwrap();
    echo.proxy.break_connections();
    assert!(answer(&mut stream).is_err());
    echo.proxy.heal();
    round_trip(&mut echo.connect());
}

#[test]
fn a_connection_may_be_broken_for_the_client_only() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let target = folder.path().join("target");
    let listener = UnixListener::bind(&target).unwrap();
    let proxy = Proxy::start(&folder.path().join("proxy"), &target, Duration::ZERO).unwrap();
    let mut client = UnixStream::connect(folder.path().join("proxy")).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[1]).unwrap();
    assert_eq!(answer(&mut server).unwrap(), 1);
    proxy.break_near();
    assert!(answer(&mut client).is_err());
    server.set_nonblocking(true).unwrap();
    let told = server.read(&mut [0]);
    assert_eq!(told.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    server.set_nonblocking(false).unwrap();
    proxy.let_go();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
}
